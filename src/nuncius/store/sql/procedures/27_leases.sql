-- Taking with acknowledgement: a message becomes a lease, and the lease is settled (done with), or released
-- (the message comes again).

-- Takes like take_many, and keeps what was taken as leases of a node. `attempts` is how often the message was
-- delivered before, `origin` the id that stays the same over all its deliveries.
create or replace function nuncius.lease_many(
    p_holder integer,
    p_queues integer[], p_receivers integer[], p_senders integer[], p_contexts integer[],
    p_modes smallint[], p_limits integer[], p_after bigint[] default null, p_wait boolean default true
) returns table (
    request integer, message_id bigint, queue_id integer, sender_id integer, receiver_id integer,
    context integer, priority smallint, time_of_arrival timestamptz, message bytea, headers text,
    attempts smallint, origin bigint
) language sql as $$
    with taken as materialized (
        select t.*, coalesce(r.attempts, 0::smallint) as attempts, coalesce(r.origin, t.message_id) as origin,
            r.last_failure, r.reason
        from nuncius.take_many(p_queues, p_receivers, p_senders, p_contexts, p_modes, p_limits, p_after,
            p_wait) t
        left join nuncius.returned r on r.message_id = t.message_id
    ), leased as (
        insert into nuncius.leases (lease_id, origin, queue_id, sender_id, receiver_id, context, priority,
            time_of_arrival, message, headers, attempts, holder, last_failure, reason)
        select message_id, origin, queue_id, sender_id, receiver_id, context, priority, time_of_arrival,
            message, headers::jsonb, attempts + 1, p_holder, last_failure, reason
        from taken where request > 0
    ), known as (
        delete from nuncius.returned r using taken t where t.attempts > 0 and r.message_id = t.message_id
    )
    select request, message_id, queue_id, sender_id, receiver_id, context, priority, time_of_arrival,
        message, headers, attempts, origin
    from taken
$$;

-- The consumer is done with these. Answers with those that were really held by this node.
create or replace function nuncius.settle_many(p_holder integer, p_ids bigint[])
returns bigint[] language sql as $$
    with settled as (
        delete from nuncius.leases where lease_id = any (p_ids) and holder = p_holder returning lease_id
    )
    select coalesce(array_agg(lease_id), '{}') from settled
$$;

-- Puts leased messages back into their queues; a delivery that never was is not counted. Answers with the
-- queues that have something again.
create or replace function nuncius.give_back(p_ids bigint[], p_counted boolean)
returns integer[] language plpgsql as $$
declare
    v_queues integer[] := array(select distinct queue_id from nuncius.leases where lease_id = any (p_ids));
begin
    perform nuncius.take_locks(78002, v_queues, v_queues, true);
    with freed as (
        delete from nuncius.leases where lease_id = any (p_ids) returning *
    ), back as (
        select f.*, nextval(pg_get_serial_sequence('nuncius.messages', 'message_id')) as new_id,
            f.attempts - case when p_counted then 0 else 1 end as count
        from (select * from freed where queue_id in (select queue_id from nuncius.queues)
            order by lease_id) f
    ), remembered as (
        insert into nuncius.returned
            (message_id, queue_id, receiver_id, priority, attempts, origin, last_failure, reason)
        select new_id, queue_id, receiver_id, priority, count, origin, last_failure, reason
        from back where count > 0
    )
    insert into nuncius.messages (message_id, queue_id, sender_id, receiver_id, context, priority,
        time_of_arrival, message, headers)
    select new_id, queue_id, sender_id, receiver_id, context, priority, time_of_arrival, message, headers
    from back;
    return v_queues;
end $$;

-- Messages that failed too often go to the queue "dead/NAME", with their history in headers. Answers with the
-- queues that have something new.
create or replace function nuncius.bury(p_ids bigint[])
returns integer[] language plpgsql as $$
declare
    v_queues integer[];
begin
    insert into nuncius.queues (queue_name)
    select distinct left('dead/' || q.queue_name, 255)
    from nuncius.leases l join nuncius.queues q using (queue_id) where l.lease_id = any (p_ids)
    on conflict do nothing;
    if found then
        perform pg_notify('nuncius', 'c');
    end if;
    v_queues := array(
        select distinct d.queue_id from nuncius.leases l join nuncius.queues q using (queue_id)
        join nuncius.queues d on d.queue_name = left('dead/' || q.queue_name, 255)
        where l.lease_id = any (p_ids));
    perform nuncius.take_locks(78002, v_queues, v_queues, true);
    with dead as (
        delete from nuncius.leases where lease_id = any (p_ids) returning *
    )
    insert into nuncius.messages (queue_id, sender_id, receiver_id, context, priority, message, headers)
    select d.queue_id, l.sender_id, l.receiver_id, l.context, l.priority, l.message,
        coalesce(l.headers, '{}') || nuncius.obituary(
            '/queue/' || q.queue_name, 'q-' || l.origin, l.attempts, l.last_failure, l.reason)
    from dead l join nuncius.queues q using (queue_id)
    join nuncius.queues d on d.queue_name = left('dead/' || q.queue_name, 255)
    order by l.lease_id;
    return v_queues;
end $$;

-- The history of a dead letter, as headers.
create or replace function nuncius.obituary(
    p_destination text, p_id text, p_attempts integer, p_last_failure timestamptz, p_reason text
) returns jsonb language sql stable as $$
    select jsonb_build_object('dead-destination', p_destination, 'dead-message-id', p_id,
        'dead-attempts', p_attempts::text, 'dead-reason', left(coalesce(p_reason, ''), 1000),
        'dead-last-failure', to_char(p_last_failure at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))
$$;

-- Gives up leases. Where the reason is null the message was never delivered and goes back at once; else the
-- attempt failed: the message comes again after p_delay seconds or, after p_most attempts, is a dead letter.
-- (Dead letters themselves are tried for ever.) Answers with the queues that have something now.
create or replace function nuncius.release_many(
    p_holder integer, p_ids bigint[], p_reasons text[], p_delay double precision, p_most integer
) returns integer[] language plpgsql as $$
declare
    v_back bigint[];
    v_dead bigint[];
    v_queues integer[] := '{}';
begin
    -- Only what this node still holds: after it was taken for dead, somebody else may have it.
    perform from nuncius.leases where lease_id = any (p_ids) and holder = p_holder order by lease_id for update;
    update nuncius.leases l
    set holder = 0, last_failure = clock_timestamp(), reason = r.reason,
        due_at = clock_timestamp() + make_interval(secs => p_delay)
    from unnest(p_ids, p_reasons) r(id, reason)
    where l.lease_id = r.id and l.holder = p_holder and r.reason is not null;
    v_back := array(select l.lease_id from unnest(p_ids, p_reasons) r(id, reason)
        join nuncius.leases l on l.lease_id = r.id where l.holder = p_holder and r.reason is null);
    v_dead := array(select l.lease_id from nuncius.leases l join nuncius.queues q using (queue_id)
        where l.lease_id = any (p_ids) and l.holder = 0 and l.attempts >= p_most
            and q.queue_name not like 'dead/%');
    if v_back <> '{}' then
        v_queues := nuncius.give_back(v_back, false);
    end if;
    if v_dead <> '{}' then
        v_queues := v_queues || nuncius.bury(v_dead);
    end if;
    return v_queues;
end $$;

-- Nodes that hold something and are not there any more.
create or replace function nuncius.dead_holders(p_holders integer[])
returns integer[] language sql as $$
    select array(select h from unnest(p_holders) h where pg_try_advisory_xact_lock(78009, h))
$$;

-- What waited long enough goes back into its queue; what a dead node held counts as failed. One bounded step;
-- answers with the queues that have something again, null when another node is at it.
create or replace function nuncius.return_leases(
    p_delay double precision, p_most integer, p_limit integer default 1000
) returns integer[] language plpgsql as $$
declare
    v_due bigint[];
    v_queues integer[] := '{}';
    v_holder integer;
begin
    if not pg_try_advisory_xact_lock(78005, 3) then
        return null;
    end if;
    for v_holder in
        with recursive h(holder) as (
            (select holder from nuncius.leases where holder > 0 order by holder limit 1)
            union all
            select (select l.holder from nuncius.leases l where l.holder > h.holder order by l.holder limit 1)
            from h where h.holder is not null
        )
        select unnest(nuncius.dead_holders(array(select holder from h where holder is not null)))
    loop
        v_due := array(select lease_id from nuncius.leases where holder = v_holder limit p_limit);
        v_queues := v_queues || nuncius.release_many(v_holder, v_due,
            array_fill('the node that delivered it is gone'::text, array[cardinality(v_due)]), p_delay, p_most);
    end loop;
    v_due := array(select lease_id from nuncius.leases where holder = 0 and due_at <= clock_timestamp()
        order by due_at limit p_limit);
    if v_due <> '{}' then
        v_queues := v_queues || nuncius.give_back(v_due, true);
    end if;
    if v_queues <> '{}' then
        perform nuncius.announce(null, v_queues);
    end if;
    return v_queues;
end $$;
