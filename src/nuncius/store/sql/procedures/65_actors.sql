-- Producers, consumers, and when they were last active.
-- A transaction that moves a consumer's position from a known place holds its lock (78021).

-- A new producer for a topic, which is made if it is not there yet.
create or replace function nuncius.register_producer(p_topic text)
returns integer language plpgsql as $$
declare
    v_topic integer;
    v_id integer;
begin
    loop
        v_topic := nuncius.ensure_topic(p_topic);
        perform from nuncius.topics where topic_id = v_topic for key share;
        exit when found;  -- and no transaction deletes it before we are done
    end loop;
    insert into nuncius.producers (topic_id) values (v_topic) returning producer_id into v_id;
    insert into nuncius.activity (kind, actor_id, last_active) values ('producer', v_id, now());
    return v_id;
end $$;

-- A new consumer of a topic, from its very beginning. Null: no such topic.
create or replace function nuncius.register_consumer(p_topic text)
returns integer language plpgsql as $$
declare
    v_id integer;
    v record;
begin
    perform from nuncius.topics where topic_name = p_topic for key share;
    if not found then
        return null;
    end if;
    loop
        v_id := nextval(pg_get_serial_sequence('nuncius.consumers', 'consumer_id'));
        select * into v from nuncius.subscribe(p_topic, 'http-consumer-' || v_id, 'earliest');
        exit when v.created;  -- else the name is taken
    end loop;
    insert into nuncius.consumers (consumer_id, subscription_id) values (v_id, v.subscription_id);
    insert into nuncius.activity (kind, actor_id, last_active) values ('consumer', v_id, now());
    return v_id;
end $$;

-- The producer or consumer of a number: its topic, and a consumer's subscription.
create or replace function nuncius.find_producer(p_id integer)
returns table (topic_name varchar) language sql stable as $$
    select t.topic_name from nuncius.producers join nuncius.topics t using (topic_id) where producer_id = p_id
$$;

create or replace function nuncius.find_consumer(p_id integer)
returns table (topic_name varchar, subscription_id integer) language sql stable as $$
    select t.topic_name, s.subscription_id
    from nuncius.consumers join nuncius.subscriptions s using (subscription_id)
    join nuncius.topics t using (topic_id) where consumer_id = p_id
$$;

-- Where there is something unread for subscriptions: a row for each that exists, with the partitions that have
-- something (or are in another store, so that only a look there can tell) and the positions in them.
create or replace function nuncius.unread_many(p_subscriptions integer[])
returns table (request integer, partitions integer[], partition_ids integer[], positions bigint[])
language sql stable as $$
    select r.n::integer, u.partitions, u.partition_ids, u.positions
    from unnest(p_subscriptions) with ordinality r(id, n)
    join nuncius.subscriptions s on s.subscription_id = r.id
    join lateral (
        select array_agg(p.partition order by p.partition) as partitions,
            array_agg(p.partition_id order by p.partition) as partition_ids,
            array_agg(greatest(c.position, p.first_offset) order by p.partition) as positions
        from nuncius.partitions p
        left join lateral (
            select c.position from nuncius.positions c
            where c.subscription_id = r.id and c.partition_id = p.partition_id
            order by c.position desc limit 1
        ) c on true
        where p.topic_id = s.topic_id and (p.store_id <> 1 or exists (
            select from nuncius.entries e where e.partition_id = p.partition_id
                and e.entry_offset >= greatest(c.position, p.first_offset)))
    ) u on true
$$;

-- Moves consumers' positions, each item from one place to another, as move_positions does. p_items, p_keys and
-- p_offsets belong to requests with a key: which item they are part of, and which entry they get. An item with a key
-- that was used before is not moved. Answers per item with -1, if it was moved; else where it stands, or
--   -2 no such subscription or partition   -3 busy, see take_locks   -5 a key is known, nothing was moved
create or replace function nuncius.advance_many(
    p_subscriptions integer[], p_partition_ids integer[], p_from bigint[], p_to bigint[], p_movers bigint[],
    p_items integer[], p_keys text[], p_offsets bigint[], p_wait boolean default true
) returns bigint[] language plpgsql as $$
declare
    v_from bigint[] := p_from;
    v_known integer[];
    v_item integer;
    v_codes bigint[];
begin
    if cardinality(p_items) > 0 then
        perform nuncius.take_locks(78021, p_subscriptions, p_subscriptions, p_wait);  -- before a look at the keys
        v_known := array(
            select k.item from unnest(p_items, p_keys) k(item, key),
            lateral (  -- with a limit: a plain join may become one with the whole table
                select from nuncius.consumed c
                where c.subscription_id = p_subscriptions[k.item] and c.request_key = k.key limit 1) c);
        foreach v_item in array v_known loop
            v_from[v_item] := -1;  -- it never stands there
        end loop;
    end if;
    v_codes := nuncius.move_positions(p_subscriptions, p_partition_ids, p_to, v_from, p_movers, p_wait);
    if cardinality(p_items) > 0 then
        foreach v_item in array v_known loop
            if v_codes[v_item] = p_from[v_item] then
                v_codes[v_item] := -5;
            end if;
        end loop;
        insert into nuncius.consumed (subscription_id, request_key, partition_id, entry_offset)
        select p_subscriptions[k.item], k.key, p_partition_ids[k.item], k.entry
        from unnest(p_items, p_keys, p_offsets) k(item, key, entry)
        where v_codes[k.item] = -1;
    end if;
    return array_replace(v_codes, -4, -1);
end $$;

-- What requests with these keys got; -1 for an entry that retention has removed since then.
create or replace function nuncius.find_consumed(p_subscriptions integer[], p_keys text[])
returns table (request integer, "partition" integer, entry_offset bigint) language sql stable as $$
    select r.n::integer, p.partition, case when c.entry_offset < p.first_offset then -1 else c.entry_offset end
    from unnest(p_subscriptions, p_keys) with ordinality r(subscription, key, n)
    join nuncius.consumed c on c.subscription_id = r.subscription and c.request_key = r.key
    join nuncius.partitions p using (partition_id)
$$;

-- The first offset of a partition whose entry arrived at that time or later; the next offset if there is none.
create or replace function nuncius.offset_at(p_partition_id integer, p_time timestamptz)
returns bigint language plpgsql stable as $$
begin
    return (select nuncius.offset_at(p_partition_id, first_offset, nuncius.next_offset(p_partition_id), p_time)
        from nuncius.partitions where partition_id = p_partition_id);
end $$;

-- Moves a subscription to other positions, forward or back, all or none. Partitions and positions go together,
-- item by item. Answers with null, or with the first partition that does not exist or has no such position yet.
create or replace function nuncius.seek(p_subscription integer, p_partitions integer[], p_positions bigint[])
returns integer language plpgsql as $$
declare
    v_wrong integer;
begin
    perform pg_advisory_xact_lock(78021, p_subscription);
    select a.partition into v_wrong
    from unnest(p_partitions, p_positions) with ordinality a(partition, position, n)
    left join nuncius.subscriptions s on s.subscription_id = p_subscription
    left join nuncius.partitions p on p.topic_id = s.topic_id and p.partition = a.partition
    where p.partition_id is null or a.position > nuncius.next_offset(p.partition_id)
    order by a.n limit 1;
    if found then
        return v_wrong;
    end if;
    delete from nuncius.positions c
    using nuncius.subscriptions s, nuncius.partitions p, unnest(p_partitions, p_positions) a(partition, position)
    where s.subscription_id = p_subscription and p.topic_id = s.topic_id and p.partition = a.partition
        and c.subscription_id = p_subscription and c.partition_id = p.partition_id;
    insert into nuncius.positions (subscription_id, partition_id, position)
    select p_subscription, p.partition_id, max(a.position)
    from unnest(p_partitions, p_positions) a(partition, position)
    join nuncius.subscriptions s on s.subscription_id = p_subscription
    join nuncius.partitions p on p.topic_id = s.topic_id and p.partition = a.partition
    group by p.partition_id;
    return null;
end $$;

-- The next offset of each partition of a topic, and how many messages it holds.
create or replace function nuncius.fullness(p_topic text)
returns table ("partition" integer, next bigint, held bigint) language sql stable as $$
    select p.partition, n.next, n.next - p.first_offset
    from nuncius.topics t join nuncius.partitions p using (topic_id),
    lateral nuncius.next_offset(p.partition_id) n(next)
    where t.topic_name = p_topic order by 1
$$;

-- Notes when actors were last active.
create or replace function nuncius.note_activity(p_kinds text[], p_ids integer[], p_times timestamptz[])
returns void language sql as $$
    insert into nuncius.activity as a (kind, actor_id, last_active)
    select kind, id, time from unnest(p_kinds, p_ids, p_times) u(kind, id, time) order by kind, id
    on conflict (kind, actor_id) do update
    set last_active = greatest(a.last_active, excluded.last_active),
        noted = a.noted and a.last_active >= excluded.last_active
$$;

-- Notes when brokers were last heard; those that were removed or have ended are forgotten.
create or replace function nuncius.note_brokers()
returns void language sql as $$
    delete from nuncius.activity where kind = 'broker' and not exists (
        select from nuncius.list_nodes(5) where broker_id = actor_id and not removed);
    select nuncius.note_activity(array_agg('broker'::text), array_agg(broker_id), array_agg(last_heard))
    from nuncius.list_nodes(5) where broker_id is not null and last_heard is not null and not removed
$$;

-- Actors, when they were last active, and whether they are: a producer or consumer that was within so many seconds, and
-- a broker whose node is alive. Brokers that were removed or have ended are none.
create or replace function nuncius.list_actors(p_inactive double precision)
returns table (kind text, actor_id integer, last_active timestamptz, is_active boolean) language sql stable as $$
    select a.kind, a.actor_id, a.last_active, case when a.kind = 'broker' then n.is_alive
        else a.last_active >= now() - make_interval(secs => p_inactive) end
    from nuncius.activity a
    left join nuncius.list_nodes(5) n on a.kind = 'broker' and n.broker_id = a.actor_id
    where a.kind <> 'broker' or n.broker_id is not null and not n.removed
$$;

-- Actors that have been silent for so many seconds and were not reported yet; from now on, they count as reported.
create or replace function nuncius.note_inactive(p_seconds double precision)
returns table (kind text, actor_id integer, last_active timestamptz) language sql as $$
    update nuncius.activity set noted = true
    where not noted and last_active < now() - make_interval(secs => p_seconds)
    returning kind, actor_id, last_active
$$;

-- Forgets keys that are a day old, and the activity of producers and consumers that are not there any more.
create or replace function nuncius.tidy_actors()
returns bigint language plpgsql as $$
declare
    v_removed bigint;
    v_rows bigint;
begin
    delete from nuncius.consumed where consumed_at < now() - interval '1 day';
    get diagnostics v_removed = row_count;
    delete from nuncius.activity a where a.last_active < now() - interval '1 hour' and (
        a.kind = 'producer' and not exists (select from nuncius.producers p where p.producer_id = a.actor_id)
        or a.kind = 'consumer' and not exists (select from nuncius.consumers c where c.consumer_id = a.actor_id));
    get diagnostics v_rows = row_count;
    return v_removed + v_rows;
end $$;
