-- Subscriptions: a durable place in a topic.

-- The name under which a job subscribes. Names with this prefix belong to jobs.
create or replace function nuncius.job_subscriber(p_job text)
returns text language sql immutable as $$ select 'nuncius:' || p_job $$;

-- Refuses a name that belongs to a job.
create or replace function nuncius.check_subscriber(p_subscriber text)
returns void language plpgsql as $$
begin
    if starts_with(p_subscriber, nuncius.job_subscriber('')) then
        raise invalid_parameter_value using message = format(
            'the subscriber %L is a job: names that begin with %L are reserved', p_subscriber, nuncius.job_subscriber(''));
    end if;
end $$;

-- Subscribes, or finds the subscription there is (which keeps its place). start: 'latest' sees only what
-- comes after, 'earliest' everything that is still there. The topic is made if it does not exist. With a holder
-- the subscription lives as long as that node (or until it ends it). One that is there and would go with a node is
-- taken over by this one, or becomes durable if no holder is given; one that is durable stays so. Names of jobs
-- are refused.
create or replace function nuncius.subscribe(
    topic text, subscriber text, start text default 'latest', holds_retention boolean default false,
    holder integer default null,
    out subscription_id integer, out created boolean
) language plpgsql as $$
begin
    perform nuncius.check_subscriber(subscriber);
    select a.subscription_id, a.created into subscription_id, created
    from nuncius.add_subscription(topic, subscriber, start, holds_retention, holder) a;
end $$;

-- Like subscribe, under any name.
create or replace function nuncius.add_subscription(
    p_topic text, p_subscriber text, p_start text, p_holds_retention boolean, p_holder integer,
    out subscription_id integer, out created boolean
) language plpgsql as $$
#variable_conflict use_column
declare
    v_topic integer;
begin
    if p_start is null or p_start not in ('latest', 'earliest') then
        raise invalid_parameter_value
            using message = format('start at ''latest'' or ''earliest'', not at %L', p_start);
    end if;
    loop
        v_topic := nuncius.ensure_topic(p_topic);
        perform from nuncius.topics where topic_id = v_topic for key share;
        exit when found;  -- and no transaction deletes it before we are done
    end loop;
    loop
        insert into nuncius.subscriptions (topic_id, subscriber_name, holds_retention, holder)
        values (v_topic, p_subscriber, p_holds_retention, p_holder)
        on conflict do nothing
        returning subscription_id into subscription_id;
        created := found;
        exit when created;
        update nuncius.subscriptions set holder = p_holder
        where topic_id = v_topic and subscriber_name = p_subscriber and holder <> coalesce(p_holder, 0);
        select s.subscription_id into subscription_id from nuncius.subscriptions s
        where s.topic_id = v_topic and s.subscriber_name = p_subscriber;
        exit when found;  -- else it has just ended
    end loop;
    if created and p_start = 'latest' then
        insert into nuncius.positions (subscription_id, partition_id, position)
        select subscription_id, partition_id, nuncius.next_offset(partition_id)
        from nuncius.partitions where topic_id = v_topic;
    end if;
end $$;

-- Ends subscriptions and forgets all about them; if a holder is given, only those that are still its own.
create or replace function nuncius.end_subscriptions(p_ids integer[], p_holder integer default null)
returns bigint language plpgsql as $$
declare
    v_ended integer[];
begin
    with ended as (
        delete from nuncius.subscriptions
        where subscription_id = any (p_ids) and (p_holder is null or holder = p_holder)
        returning subscription_id
    )
    select coalesce(array_agg(subscription_id), '{}') into v_ended from ended;
    delete from nuncius.positions where subscription_id = any (v_ended);
    delete from nuncius.deliveries where subscription_id = any (v_ended);
    delete from nuncius.failures where subscription_id = any (v_ended);
    return cardinality(v_ended);
end $$;

-- Ends one subscription. False: there was none.
create or replace function nuncius.unsubscribe(topic text, subscriber text)
returns boolean language plpgsql as $$
declare
    v_ids integer[] := array(
        select s.subscription_id from nuncius.subscriptions s join nuncius.topics t using (topic_id)
        where t.topic_name = topic and s.subscriber_name = subscriber);
begin
    if nuncius.end_subscriptions(v_ids) = 0 then
        return false;
    end if;
    perform pg_notify('nuncius', 'c');
    return true;
end $$;

-- Where subscriptions stand in each partition of their topic. `position` is the next offset to read, `next`
-- the next one to be published, so their difference is the lag. A subscriber of a partition in another store may
-- be further than we know that it goes.
create or replace function nuncius.positions_of(subscription_ids integer[])
returns table (
    subscription_id integer, partition integer, partition_id integer, "position" bigint, next bigint,
    confirmed_at timestamptz
) language sql stable as $$
    select s.subscription_id, p.partition, p.partition_id,
        greatest(c.position, p.first_offset), greatest(c.position, nuncius.next_offset(p.partition_id)),
        c.confirmed_at
    from nuncius.subscriptions s
    join nuncius.partitions p using (topic_id)
    left join lateral (
        select c.position, c.confirmed_at from nuncius.positions c
        where c.subscription_id = s.subscription_id and c.partition_id = p.partition_id
        order by c.position desc limit 1
    ) c on true
    where s.subscription_id = any (subscription_ids)
    order by s.subscription_id, p.partition
$$;

-- Moves positions: everything below `to` is confirmed. The arrays go together, item by item. A position only moves
-- forward; a subscription that stands there already, or further, stays. With p_from it moves only if it stands exactly
-- there, so that several nodes may read for one consumer and no entry is handed out twice; no two such items are of the
-- same subscription and partition. A repeated move with the same mover (its answer was lost) is recognised. With
-- p_checked, instead of p_from, the caller has made sure that every item with a place can be carried out.
-- Answers per item, or null if p_checked:
--   -1 moved, or it stood there already   -2 no such subscription or partition   -3 busy, see take_locks
--   -4 moved before by the same mover     -7 nothing was published there yet     else where it stands instead
-- Only this procedure, subscribe, seek and mirror_partitions write to positions.
create or replace function nuncius.move_positions(
    p_subscriptions integer[], p_partition_ids integer[], p_to bigint[], p_from bigint[] default null,
    p_movers bigint[] default null, p_wait boolean default true, p_checked boolean default false
) returns bigint[] language plpgsql as $$
declare
    v_busy integer[];
    v_codes bigint[];
begin
    if p_from is not null then
        v_busy := nuncius.take_locks(78021, p_subscriptions, p_subscriptions, p_wait);
        select array_agg(case
            when i.subscription = any (v_busy) then -3
            when (s.topic_id = p.topic_id) is not true then -2
            when greatest(q.position, p.first_offset) = i.origin then -1
            when greatest(q.position, p.first_offset) > i.origin and exists (
                select from nuncius.positions c
                where c.subscription_id = i.subscription and c.partition_id = i.id and c.position = i.target
                    and c.mover = i.mover) then -4
            else greatest(q.position, p.first_offset) end order by i.n)
        into v_codes
        from unnest(p_subscriptions, p_partition_ids, p_to, p_from, p_movers) with ordinality
            i(subscription, id, target, origin, mover, n)
        left join nuncius.subscriptions s on s.subscription_id = i.subscription
        left join nuncius.partitions p on p.partition_id = i.id
        left join lateral (
            select c.position from nuncius.positions c
            where c.subscription_id = i.subscription and c.partition_id = i.id
            order by c.position desc limit 1
        ) q on true;

        insert into nuncius.positions (subscription_id, partition_id, position, mover)
        select i.subscription, i.id, i.target, i.mover
        from unnest(p_subscriptions, p_partition_ids, p_to, p_movers, v_codes)
            i(subscription, id, target, mover, code)
        where i.code = -1;
        return v_codes;
    end if;

    if not p_checked then
        select array_agg(case
            when (s.topic_id = p.topic_id) is not true then -2
            when i.target is null then -7
            -- A reader of a partition in another store may know more of its end than we do.
            when i.target <= p.first_offset or p.store_id <> 1 or exists (
                select from nuncius.entries e
                where e.partition_id = i.id and e.entry_offset >= i.target - 1) then -1
            else -7 end order by i.n)
        into v_codes
        from unnest(p_subscriptions, p_partition_ids, p_to) with ordinality i(subscription, id, target, n)
        left join nuncius.subscriptions s on s.subscription_id = i.subscription
        left join nuncius.partitions p on p.partition_id = i.id;
    end if;
    insert into nuncius.positions (subscription_id, partition_id, position)
    select i.subscription, i.id, max(i.target)
    from unnest(p_subscriptions, p_partition_ids, p_to, v_codes) i(subscription, id, target, code)
    where i.code = -1 or p_checked
    group by i.subscription, i.id
    having max(i.target) > 0 and not exists (  -- in a "where" this may become a join with the whole table
        select from nuncius.positions c
        where c.subscription_id = i.subscription and c.partition_id = i.id and c.position >= max(i.target))
    on conflict do nothing;
    return v_codes;
end $$;

-- Confirms, for several subscriptions, everything below a position of a partition. Positions only move forward:
-- confirming what is confirmed changes nothing. Answers per item:
--   0 confirmed   -2 no such subscription or partition   -7 nothing was published there yet
create or replace function nuncius.confirm_many(
    p_subscriptions integer[], p_partition_ids integer[], p_positions bigint[]
) returns integer[] language sql as $$
    select array_replace(nuncius.move_positions(p_subscriptions, p_partition_ids, p_positions), -1, 0)::integer[]
$$;

-- Confirms everything below a position, by names. False: no such subscription, partition or entry. Names of jobs
-- are refused.
create or replace function nuncius.confirm(
    topic text, subscriber text, next_offset bigint, partition integer default 1
) returns boolean language plpgsql as $$
begin
    perform nuncius.check_subscriber(subscriber);
    return (
        select coalesce(bool_and(0 = any (nuncius.confirm_many(
            array[s.subscription_id], array[p.partition_id], array[next_offset]))), false)
        from nuncius.topics t
        join nuncius.subscriptions s on s.topic_id = t.topic_id and s.subscriber_name = subscriber
        join nuncius.partitions p on p.topic_id = t.topic_id and p.partition = confirm.partition
        where t.topic_name = topic);
end $$;

-- The subscriptions of a topic, of a subscriber, or all, with their lag.
create or replace function nuncius.list_subscriptions(
    topic text default null, subscriber text default null
) returns table (
    subscription_id integer, topic_name varchar, subscriber_name varchar, holds_retention boolean,
    created_at timestamptz, lag bigint, confirmed_at timestamptz
) language sql stable as $$
    select s.subscription_id, t.topic_name, s.subscriber_name, s.holds_retention, s.created_at,
        sum(w.next - w.position)::bigint, max(w.confirmed_at)
    from nuncius.subscriptions s
    join nuncius.topics t using (topic_id),
    lateral nuncius.positions_of(array[s.subscription_id]) w
    where (topic is null or t.topic_name = topic)
        and (subscriber is null or s.subscriber_name = subscriber)
    group by s.subscription_id, t.topic_name
    order by t.topic_name, s.subscriber_name
$$;
