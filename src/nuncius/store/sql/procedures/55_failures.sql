-- Deliveries to subscribers that acknowledge: delivered entries, and failures.

-- Notes, before they are sent, that entries below these offsets are delivered.
create or replace function nuncius.deliver_many(
    p_subscriptions integer[], p_partition_ids integer[], p_to bigint[]
) returns void language sql as $$
    insert into nuncius.deliveries (subscription_id, partition_id, delivered_to)
    select * from unnest(p_subscriptions, p_partition_ids, p_to)
    on conflict do nothing
$$;

-- Claims a durable subscription, which one node feeds at a time: the last to claim it gets it. Returns true if it is
-- this node's now. If not, its present node is notified; p_force takes it from a node that does not make way.
create or replace function nuncius.claim_feed(p_subscription integer, p_holder integer, p_force boolean)
returns boolean language plpgsql as $$
declare
    v_feeder integer;
begin
    select feeder into v_feeder from nuncius.subscriptions where subscription_id = p_subscription for update;
    if v_feeder <> p_holder and not p_force
        and not pg_try_advisory_xact_lock(78009, v_feeder) then  -- it is alive
        update nuncius.subscriptions set heir = p_holder where subscription_id = p_subscription;
        perform pg_notify('nuncius', 'w' || p_subscription);
        return false;
    end if;
    update nuncius.subscriptions set feeder = p_holder, heir = null where subscription_id = p_subscription;
    return true;
end $$;

-- Returns those of these subscriptions that a node has to release.
create or replace function nuncius.wanted_feeds(p_subscriptions integer[], p_holder integer)
returns setof integer language sql stable as $$
    select subscription_id from nuncius.subscriptions
    where subscription_id = any (p_subscriptions) and (feeder <> p_holder or heir <> p_holder)
$$;

-- Releases a subscription of a node; a node that waits for it is notified.
create or replace function nuncius.release_feed(p_subscription integer, p_holder integer)
returns void language plpgsql as $$
declare
    v_heir integer;
begin
    update nuncius.subscriptions set feeder = null where subscription_id = p_subscription and feeder = p_holder
    returning heir into v_heir;
    if v_heir is not null then
        perform pg_notify('nuncius', 'f' || p_subscription);
    end if;
end $$;

-- Notes failed attempts. An entry is redelivered after p_delay seconds; after p_most attempts it is published to
-- the topic "dead/NAME" with its history in headers, and not retried any more (entries of a "dead/" topic are
-- given up without that). Returns per item the attempts so far; negative: given up.
create or replace function nuncius.fail_many(
    p_subscriptions integer[], p_partition_ids integer[], p_offsets bigint[], p_reasons text[],
    p_delay double precision, p_most integer
) returns integer[] language plpgsql as $$
declare
    v record;
    v_attempts integer[];
begin
    with failed as (
        insert into nuncius.failures as f
            (subscription_id, partition_id, entry_offset, attempts, last_failure, due_at, reason)
        select subscription, id, entry, 1, clock_timestamp(),
            clock_timestamp() + make_interval(secs => p_delay), reason
        from unnest(p_subscriptions, p_partition_ids, p_offsets, p_reasons) u(subscription, id, entry, reason)
        where exists (select from nuncius.subscriptions s where s.subscription_id = subscription)
        order by subscription, id, entry
        on conflict (subscription_id, partition_id, entry_offset) do update
        set attempts = f.attempts + 1, last_failure = excluded.last_failure, due_at = excluded.due_at,
            reason = excluded.reason
        returning subscription_id, partition_id, entry_offset, attempts
    )
    select array_agg(coalesce(f.attempts, -1) order by u.n) into v_attempts
    from unnest(p_subscriptions, p_partition_ids, p_offsets) with ordinality u(subscription, id, entry, n)
    left join failed f
        on f.subscription_id = u.subscription and f.partition_id = u.id and f.entry_offset = u.entry;

    for v in
        select u.n, t.topic_id, t.topic_name, s.subscriber_name, p.partition, e.key, e.body, e.headers, f.*
        from unnest(p_subscriptions, p_partition_ids, p_offsets, v_attempts) with ordinality
            u(subscription, id, entry, attempts, n)
        join nuncius.failures f
            on f.subscription_id = u.subscription and f.partition_id = u.id and f.entry_offset = u.entry
        join nuncius.subscriptions s on s.subscription_id = u.subscription
        join nuncius.topics t on t.topic_id = s.topic_id
        join nuncius.partitions p on p.partition_id = u.id
        left join nuncius.entries e on e.partition_id = u.id and e.entry_offset = u.entry
            and e.entry_offset >= p.first_offset
        where u.attempts >= p_most
        order by t.topic_name, u.n
    loop
        v_attempts[v.n] := -v_attempts[v.n];
        if v.body is not null and v.topic_name not like 'dead/%' then
            perform nuncius.publish_bytes(left('dead/' || v.topic_name, 255), v.body, v.key,
                coalesce(v.headers, '{}') || jsonb_build_object('dead-subscriber', v.subscriber_name)
                || nuncius.obituary('/topic/' || v.topic_name, format('t-%s-%s-%s', v.topic_id, v.partition,
                    v.entry_offset), v.attempts, v.last_failure, v.reason));
        end if;
        delete from nuncius.failures
        where subscription_id = v.subscription_id and partition_id = v.partition_id
            and entry_offset = v.entry_offset;
    end loop;
    return v_attempts;
end $$;

-- Deletes the failures of entries that are acknowledged now.
create or replace function nuncius.recover_many(
    p_subscriptions integer[], p_partition_ids integer[], p_offsets bigint[]
) returns void language sql as $$
    delete from nuncius.failures f
    using unnest(p_subscriptions, p_partition_ids, p_offsets) u(subscription, id, entry)
    where f.subscription_id = u.subscription and f.partition_id = u.id and f.entry_offset = u.entry
$$;

-- Lists failed deliveries awaiting redelivery, the latest first. `overview` counts them as `failures`.
create or replace function nuncius.list_awaiting(p_limit integer)
returns table (
    destination text, subscriber varchar, partition integer, id bigint, attempts integer,
    last_failure timestamptz, due_at timestamptz, reason text
) language sql stable as $$
    (select '/topic/' || t.topic_name, s.subscriber_name, p.partition, f.entry_offset, f.attempts, f.last_failure,
        f.due_at, f.reason
    from nuncius.failures f
    join nuncius.subscriptions s using (subscription_id)
    join nuncius.topics t using (topic_id)
    join nuncius.partitions p on p.partition_id = f.partition_id
    order by f.last_failure desc limit p_limit)
    union all
    (select '/queue/' || q.queue_name, null, null, l.origin, l.attempts, l.last_failure, l.due_at, l.reason
    from nuncius.leases l join nuncius.queues q using (queue_id)
    where l.holder = 0
    order by l.last_failure desc nulls last limit p_limit)
    order by 6 desc nulls last limit p_limit
$$;

-- Lists failed deliveries to subscribers of topics and to consumers of queues, the latest first.
create or replace function nuncius.list_failures(max_failures integer default 1000)
returns table (
    destination text, subscriber varchar, partition integer, id bigint, attempts integer,
    last_failure timestamptz, due_at timestamptz, reason text
) language sql stable as $$
    (select * from nuncius.list_awaiting(max_failures) a where a.last_failure is not null)
    union all
    (select '/queue/' || q.queue_name, null, null, l.origin, l.attempts, l.last_failure, l.due_at, l.reason
    from nuncius.leases l join nuncius.queues q using (queue_id)
    where l.last_failure is not null and l.holder <> 0
    order by l.last_failure desc limit max_failures)
    union all
    (select '/queue/' || q.queue_name, null, null, r.origin, r.attempts, r.last_failure, null, r.reason
    from nuncius.returned r join nuncius.queues q using (queue_id)
    where r.last_failure is not null and exists (
        select from nuncius.messages m
        where m.queue_id = r.queue_id and m.receiver_id = r.receiver_id and m.priority = r.priority
            and m.message_id = r.message_id)
    order by r.last_failure desc limit max_failures)
    order by 6 desc limit max_failures
$$;

-- Counts failed deliveries: how many there are for each destination, and the latest of them.
create or replace function nuncius.count_failures()
returns table (destination text, failures bigint, last_failure timestamptz, reason text)
language sql stable as $$
    select destination, count(*), max(last_failure), (array_agg(reason order by last_failure desc))[1]
    from nuncius.list_failures(null) group by destination order by 3 desc
$$;

-- Stores acknowledgements of subscribers in one transaction: confirmed positions, entries that failed, entries
-- that failed before and are acknowledged now. Returns the attempts of the failed ones, as fail_many does.
create or replace function nuncius.acknowledge_many(
    p_subscriptions integer[], p_partition_ids integer[], p_positions bigint[],
    p_failed_subscriptions integer[], p_failed_ids integer[], p_failed_offsets bigint[], p_reasons text[],
    p_taken_subscriptions integer[], p_taken_ids integer[], p_taken_offsets bigint[],
    p_delay double precision, p_most integer
) returns integer[] language plpgsql as $$
begin
    if p_subscriptions <> '{}' then
        perform nuncius.move_positions(p_subscriptions, p_partition_ids, p_positions);
    end if;
    if p_taken_subscriptions <> '{}' then
        perform nuncius.recover_many(p_taken_subscriptions, p_taken_ids, p_taken_offsets);
    end if;
    if p_failed_subscriptions <> '{}' then
        return nuncius.fail_many(
            p_failed_subscriptions, p_failed_ids, p_failed_offsets, p_reasons, p_delay, p_most);
    end if;
    return '{}';
end $$;
