-- Reliable publish/subscribe, as its report has it: a publisher says which of its messages this is, a
-- subscriber which one it wants next. Names come in and are looked up here, so that no call goes by an outdated
-- catalogue.

-- The topic of that name. One that is made here keeps entries until all its subscribers have them.
create or replace function nuncius.ensure_shared_topic(p_name text)
returns integer language plpgsql as $$
declare
    v_id integer;
begin
    loop
        select topic_id into v_id from nuncius.topics where topic_name = p_name;
        if found then
            return v_id;
        end if;
        begin
            v_id := nuncius.create_topic(p_name);
            update nuncius.topics set retention = 'subscribers' where topic_id = v_id;
            return v_id;
        exception when unique_violation then
            null;  -- another call was faster
        end;
    end loop;
end $$;

-- Publishes messages, each only if its count is one more than what this publisher has in this topic. Topics
-- and publishers are made if they are not there. An item a message; answers with
--   codes: 0 stored   1 another count is due   -2 the topic has changed, try again   -3 busy, see take_locks
--     -5 its partition is in another store
--   registered: the publisher's count in the topic;  subscribers: how many the topic has;  topic_ids
-- It keeps what publish_many promises. That one is made for few publishers that send much at once; here
-- each sends one, and a look at each in turn would take three times as long. A publisher keeps to one
-- partition of a topic here, so the lock of the partition is the lock of its count as well.
create or replace function nuncius.publish_in_turn(
    p_topics text[], p_publishers text[], p_counts bigint[], p_bodies bytea[], p_wait boolean default true,
    out codes integer[], out registered bigint[], out subscribers bigint[], out topic_ids integer[]
) language plpgsql as $$
declare
    v_publishers integer[];
    v_partitions integer[];
    v_only boolean;      -- whether it is one partition
    v_busy integer[];
    v_firsts integer[];  -- for each message the first one here of the same publisher and topic
    v_several boolean;   -- whether a publisher has sent several
    v_counts bigint[];   -- its count then, in the place of its first one
    v_first integer;
    i integer;
begin
    loop
        select array_agg(f.topic_id), array_agg(f.partition_id), array_agg(f.publisher_id), array_agg(f.readers),
            min(f.partition_id) = max(f.partition_id)
        into topic_ids, v_partitions, v_publishers, subscribers, v_only
        from (
            select k.topic_id, u.publisher_id, k.readers, coalesce(k.partition_id, (
                select p.partition_id from nuncius.partitions p
                where p.topic_id = k.topic_id
                    and p.partition = nuncius.partition_of(r.publisher, k.partition_count))) as partition_id
            from unnest(p_topics, p_publishers) with ordinality r(topic, publisher, n)
            left join (
                select t.topic_name, t.topic_id, t.partition_count, p.partition_id, (
                    select count(*) from nuncius.subscriptions s where s.topic_id = t.topic_id) as readers
                from nuncius.topics t
                left join nuncius.partitions p on p.topic_id = t.topic_id and t.partition_count = 1
                where t.topic_name = any (p_topics) offset 0) k on k.topic_name = r.topic
            left join nuncius.publishers u on u.publisher_name = r.publisher
            order by r.n) f;
        exit when array_position(topic_ids, null) is null and array_position(v_publishers, null) is null;
        perform nuncius.ensure_shared_topic(topic) from (
            select topic from unnest(p_topics, topic_ids) m(topic, id)
            where id is null group by topic order by topic) m;
        perform nuncius.ensure_publishers(array(
            select publisher from unnest(p_publishers, v_publishers) m(publisher, id)
            where id is null group by publisher order by publisher));
    end loop;

    -- Nearly always there is one partition, and it is free.
    if v_only and pg_try_advisory_xact_lock(78001, v_partitions[1]) then
        v_busy := '{}';
    else
        v_busy := nuncius.take_locks(78001, v_partitions, topic_ids, p_wait);
    end if;

    -- From here on no other call adds to these partitions; and what was deleted while we waited is not there any
    -- more. Counts are looked for from the one before the first that is wanted: that is where they are, and a
    -- scan from the end would read a page of earlier ones.
    select array_agg(case when f.code = 1 and f.alone and f.count = f.registered + 1 then 0 else f.code end),
        array_agg(f.registered), array_agg(f.first), not bool_and(f.alone)
    into codes, registered, v_firsts, v_several
    from (
        select m.count, m.first, m.alone, case
                when p.partition_id is null then -2
                when p.store_id <> 1 then -5
                when m.topic = any (v_busy) then -3
                else 1 end as code, coalesce((
            select c.publisher_count from nuncius.publisher_counts c
            where c.publisher_id = m.publisher and c.kind = 1 and c.target_id = m.topic
                and c.publisher_count >= m.least - 1
            order by c.publisher_count desc limit 1), case when m.least <= 1 then 0 end) as registered
        from (
            select u.*, min(u.count) over w as least, (min(u.n) over w)::integer as first, count(*) over w = 1 as alone
            from unnest(v_partitions, v_publishers, topic_ids, p_counts) with ordinality
                u(id, publisher, topic, count, n)
            window w as (partition by u.publisher, u.topic)) m
        left join nuncius.partitions p on p.partition_id = m.id
        order by m.n) f;
    if v_several then
        v_counts := registered;
        for i in 1 .. cardinality(codes) loop
            v_first := v_firsts[i];
            if codes[i] = 1 and p_counts[i] = v_counts[v_first] + 1 then
                codes[i] := 0;
                v_counts[v_first] := p_counts[i];
            end if;
            registered[i] := v_counts[v_first];
        end loop;
    end if;
    if array_position(registered, null) is not null then
        select array_agg(coalesce(m.count, (
            select max(c.publisher_count) from nuncius.publisher_counts c
            where c.publisher_id = m.publisher and c.kind = 1 and c.target_id = m.topic), 0) order by m.n)
        into registered
        from unnest(registered, v_publishers, topic_ids) with ordinality m(count, publisher, topic, n);
    end if;

    with new as materialized (
        select * from unnest(v_partitions, v_publishers, topic_ids, p_counts, p_bodies, codes) with ordinality
            m(id, publisher, topic, count, body, code, n)
        where code = 0
    ), counted as (
        insert into nuncius.publisher_counts (publisher_id, kind, target_id, publisher_count)
        select publisher, 1, topic, max(count) from new group by publisher, topic
    )
    insert into nuncius.entries (partition_id, publisher_id, entry_offset, publisher_count, body)
    select n.id, n.publisher, f.next + row_number() over (partition by n.id order by n.n) - 1, n.count, n.body
    from new n
    join (
        select d.id, nuncius.next_offset(d.id) as next
        from (select distinct id from unnest(v_partitions) id) d offset 0) f using (id);
end $$;

-- The id after the last one that a subscription has confirmed.
create or replace function nuncius.next_id(p_subscription integer)
returns bigint language sql stable as $$
    with places as (
        select w.partition, w.partition_id, coalesce(c.position, 0) as position
        from nuncius.positions_of(array[p_subscription]) w
        left join lateral (
            select max(c.position) as position from nuncius.positions c
            where c.subscription_id = p_subscription and c.partition_id = w.partition_id) c on true
    )
    select coalesce(
        (select q.first_id + greatest(p.position - q.first_offset, 0)
        from nuncius.sequences q join places p using (partition_id)
        where q.subscription_id = p_subscription and q.first_offset + q.entries > p.position
        order by q.first_id limit 1),
        (select q.first_id + q.entries from nuncius.sequences q
        where q.subscription_id = p_subscription order by q.first_id desc limit 1),
        (select position from places where partition = 1))
$$;

-- Subscribes from the latest entry on. `last_id` is the id that the subscriber has last, or has to assume so;
-- not created: it was subscribed already. In a topic with several partitions a new subscription's ids go on after
-- as many as there were entries, so that who comes back never gets another entry for an id that it had before.
create or replace function nuncius.subscribe_in_sequence(
    p_topic text, p_subscriber text, out created boolean, out last_id bigint
) language plpgsql as $$
declare
    v_subscription integer;
begin
    perform nuncius.ensure_shared_topic(p_topic);
    select s.subscription_id, s.created into v_subscription, created from nuncius.subscribe(p_topic, p_subscriber) s;
    if created then
        -- The last entry of one of the partitions stands for the latest of all.
        insert into nuncius.sequences (subscription_id, first_id, partition_id, first_offset, entries)
        select v_subscription, w.total - 1, w.partition_id, w.position - 1, 1
        from (
            select c.partition_id, c.position, sum(c.position) over () as total, count(*) over () as partitions
            from nuncius.positions c where c.subscription_id = v_subscription) w
        where w.partitions > 1 and w.position > 0 order by w.partition_id limit 1;
    end if;
    last_id := nuncius.next_id(v_subscription) - 1;
end $$;

-- Gets entries by the ids of their subscribers, and confirms everything below those ids. At most about p_bytes
-- bytes at once, but always one entry. An item a request; answers with
--   codes: 0 here it is   1 there is no such entry (yet, or any more)   2 too much at once, ask again
--     -2 not subscribed
--   latest: the latest id as this subscriber counts;  topic_ids;  bodies
create or replace function nuncius.get_many(
    p_topics text[], p_subscribers text[], p_ids bigint[], p_bytes bigint,
    out codes integer[], out latest bigint[], out topic_ids integer[], out bodies bytea[]
) language plpgsql as $$
declare
    v_subscriptions integer[];
    v_partitions integer[];
    v_confirmed bigint[];
    v_bytes bigint;
    v_found record;
    v record;
begin
    -- Where ids are offsets, one statement finds everything; the others stay without a code.
    with known as materialized (
        select t.topic_name, t.topic_id, p.partition_id, p.first_offset, nuncius.next_offset(p.partition_id) as next
        from nuncius.topics t
        left join nuncius.partitions p on p.topic_id = t.topic_id and t.partition_count = 1
        where t.topic_name = any (p_topics)
    ), asked as (
        select r.n, r.id, k.topic_id, s.subscription_id, k.first_offset, k.next, case when not exists (
            select from nuncius.sequences q where q.subscription_id = s.subscription_id) then k.partition_id end
            as partition_id
        from unnest(p_topics, p_subscribers, p_ids) with ordinality r(topic, subscriber, id, n)
        left join known k on k.topic_name = r.topic
        left join nuncius.subscriptions s on s.topic_id = k.topic_id and s.subscriber_name = r.subscriber
    ), found as (
        select a.*, e.body, octet_length(e.body) as size, sum(octet_length(e.body)) over (order by a.n) as total
        from asked a
        left join nuncius.entries e
            on e.partition_id = a.partition_id and e.entry_offset = a.id and a.id >= a.first_offset
    ), judged as (
        select f.*, case
            when subscription_id is null then -2
            when partition_id is null then null
            when total > greatest(p_bytes, size) and body is not null then 2
            when body is not null then 0
            when id >= next or exists (
                select from nuncius.positions c
                where c.subscription_id = f.subscription_id and c.partition_id = f.partition_id
                    and c.position > f.id) then 1 end as code
        from found f order by n
    )
    select array_agg(code), array_agg(next - 1), array_agg(topic_id), array_agg(case when code = 0 then body end),
        array_agg(subscription_id), array_agg(partition_id),
        array_agg(case when code in (0, 1) and id <= next and id > 0 then id end),
        coalesce(sum(size) filter (where code = 0), 0)
    into codes, latest, topic_ids, bodies, v_subscriptions, v_partitions, v_confirmed, v_bytes
    from judged;

    perform nuncius.move_positions(v_subscriptions, v_partitions, v_confirmed, p_checked => true);

    if array_position(codes, null) is not null then
        for v in
            select n, subscription, id
            from unnest(v_subscriptions, p_ids, codes) with ordinality u(subscription, id, code, n)
            where code is null order by subscription, n
        loop
            if v_bytes > p_bytes then
                codes[v.n] := 2;
            else
                v_found := nuncius.get_in_sequence(v.subscription, v.id);
                codes[v.n] := v_found.code;
                latest[v.n] := v_found.latest;
                bodies[v.n] := v_found.body;
                v_bytes := v_bytes + coalesce(octet_length(v_found.body), 0);
            end if;
        end loop;
    end if;
end $$;

-- What of its topic a subscription has no ids for yet: everything after its runs and its positions.
create or replace function nuncius.entries_without_id(p_subscription integer)
returns table (partition integer, partition_id integer, first_offset bigint, entries bigint) language sql stable as $$
    select p.partition, p.partition_id, w.first, w.next - w.first
    from nuncius.subscriptions s
    join nuncius.partitions p using (topic_id),
    lateral (
        select nuncius.next_offset(p.partition_id) as next, greatest(p.first_offset, (
            select max(c.position) from nuncius.positions c
            where c.subscription_id = p_subscription and c.partition_id = p.partition_id), (
            select q.first_offset + q.entries from nuncius.sequences q
            where q.subscription_id = p_subscription and q.partition_id = p.partition_id
            order by q.first_offset desc limit 1)) as first
    ) w
    where s.subscription_id = p_subscription and w.next > w.first
    order by p.partition
$$;

-- Gives ids from p_id on to all of that, partition by partition; answers with the next id. Runs that were read,
-- and whose entries are gone, are forgotten.
create or replace function nuncius.give_ids(p_subscription integer, p_id bigint)
returns bigint language plpgsql as $$
begin
    with given as (
        insert into nuncius.sequences (subscription_id, first_id, partition_id, first_offset, entries)
        select p_subscription, p_id + sum(e.entries) over (order by e.partition) - e.entries,
            e.partition_id, e.first_offset, e.entries
        from nuncius.entries_without_id(p_subscription) e
        returning entries
    ), forgotten as (
        delete from nuncius.sequences q using nuncius.partitions p
        where q.subscription_id = p_subscription and p.partition_id = q.partition_id
            and q.first_offset + q.entries <= p.first_offset and q.first_id + q.entries < p_id
            and q.first_offset + q.entries <= (
                select max(c.position) from nuncius.positions c
                where c.subscription_id = p_subscription and c.partition_id = q.partition_id)
    )
    select p_id + coalesce(sum(entries), 0) into p_id from given;
    return p_id;
end $$;

-- Like get_many, for one subscription whose ids are not offsets: its topic has several partitions, or entries
-- were removed before it had them.
create or replace function nuncius.get_in_sequence(
    p_subscription integer, p_id bigint, out code integer, out latest bigint, out body bytea
) language plpgsql as $$
declare
    v_topic integer;
    v_run nuncius.sequences;
    v_end bigint;  -- ids below this one stand for entries
    v_entry bigint;
    v_position bigint;
begin
    select topic_id into v_topic from nuncius.subscriptions
    where subscription_id = p_subscription for no key update;  -- one at a time gives ids
    if not found then
        code := -2;
        return;
    end if;
    select q.first_id + q.entries into v_end from nuncius.sequences q
    where q.subscription_id = p_subscription order by q.first_id desc limit 1;
    if not found then
        -- So far the ids were the offsets of the first partition, and they stay that.
        insert into nuncius.sequences (subscription_id, first_id, partition_id, first_offset, entries)
        select p_subscription, 0, f.partition_id, 0, f.next from (
            select p.partition_id, nuncius.next_offset(p.partition_id) as next from nuncius.partitions p
            where p.topic_id = v_topic and p.partition = 1) f
        where f.next > 0 returning entries into v_end;
        v_end := coalesce(v_end, 0);
    end if;

    code := 1;
    if p_id < v_end then
        select q.* into v_run from nuncius.sequences q
        where q.subscription_id = p_subscription and q.first_id <= p_id order by q.first_id desc limit 1;
        if p_id < v_run.first_id + v_run.entries then  -- else its run is forgotten, and it stays without an entry
            v_entry := v_run.first_offset + p_id - v_run.first_id;
        end if;
        select e.body into body from nuncius.entries e join nuncius.partitions p using (partition_id)
        where e.partition_id = v_run.partition_id and e.entry_offset = v_entry and v_entry >= p.first_offset;
        if found then
            code := 0;
        elsif v_entry >= coalesce((
            select max(c.position) from nuncius.positions c
            where c.subscription_id = p_subscription and c.partition_id = v_run.partition_id), 0)
        then
            -- It is gone and this subscriber never had it: the id goes to what comes next instead.
            delete from nuncius.sequences where subscription_id = p_subscription and first_id >= p_id;
            update nuncius.sequences set entries = p_id - first_id
            where subscription_id = p_subscription and first_id = v_run.first_id;
            v_end := p_id;
        end if;
    end if;
    if p_id >= v_end then
        v_end := nuncius.give_ids(p_subscription, v_end);
        if p_id < v_end then
            select g.code, g.latest, g.body into code, latest, body
            from nuncius.get_in_sequence(p_subscription, p_id) g;
            return;
        end if;
        latest := v_end - 1;  -- without what has come since: it would tell the subscriber to pass it over
    else
        select v_end - 1 + coalesce(sum(entries), 0) into latest from nuncius.entries_without_id(p_subscription);
    end if;

    if p_id <= v_end then
        -- Everything below has arrived. Going back, what was confirmed before ends it.
        for v_run in
            select q.* from nuncius.sequences q
            where q.subscription_id = p_subscription and q.first_id < p_id order by q.first_id desc
        loop
            v_entry := v_run.first_offset + least(v_run.entries, p_id - v_run.first_id);
            select max(c.position) into v_position from nuncius.positions c
            where c.subscription_id = p_subscription and c.partition_id = v_run.partition_id;
            exit when v_position >= v_entry;
            perform nuncius.move_positions(
                array[p_subscription], array[v_run.partition_id], array[v_entry], p_checked => true);
        end loop;
    end if;
end $$;
