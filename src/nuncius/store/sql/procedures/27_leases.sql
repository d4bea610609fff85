-- Taking with acknowledgement: a message becomes a lease, and the lease is settled (acknowledged), or released
-- (the message is redelivered).

-- Moves out the history of redelivered messages: from now on their leases have it. A statement of its own, so that
-- it sees all that the take before it has seen.
create or replace function nuncius.recall(p_ids bigint[])
returns setof nuncius.returned language plpgsql as $$
begin
    return query delete from nuncius.returned where message_id = any (p_ids) returning *;
end $$;

-- Takes like take_many, and keeps the messages as leases of a node. `attempts` is how often the message was
-- delivered before, `origin` the id that stays the same over all its deliveries.
create or replace function nuncius.lease_many(
    p_holder integer, p_batch bigint,
    p_queues integer[], p_receivers integer[], p_senders integer[], p_contexts integer[],
    p_modes smallint[], p_limits integer[], p_after bigint[] default null, p_wait boolean default true,
    p_bytes bigint default null
) returns table (
    request integer, message_id bigint, queue_id integer, sender_id integer, receiver_id integer,
    context integer, priority smallint, time_of_arrival timestamptz, message bytea, headers text,
    attempts integer, origin bigint
) language plpgsql as $$
#variable_conflict use_column
begin
    return query
    with taken as materialized (
        select * from nuncius.take_many(p_queues, p_receivers, p_senders, p_contexts, p_modes, p_limits,
            p_after, p_wait, p_bytes) with ordinality
    ), known as materialized (
        select * from nuncius.recall(array(select message_id from taken where request > 0))
    ), delivered as materialized (
        select t.*, coalesce(k.attempts, 0) as attempts, coalesce(k.origin, t.message_id) as origin,
            k.last_failure, k.reason
        from taken t left join known k on k.message_id = t.message_id
    ), leased as (
        insert into nuncius.leases (lease_id, origin, queue_id, sender_id, receiver_id, context, priority,
            time_of_arrival, message, headers, attempts, holder, batch, last_failure, reason)
        select message_id, origin, queue_id, sender_id, receiver_id, context, priority, time_of_arrival,
            message, headers::jsonb, attempts + 1, p_holder, p_batch, last_failure, reason
        from delivered where request > 0
    )
    select request, message_id, queue_id, sender_id, receiver_id, context, priority, time_of_arrival,
        message, headers, attempts, origin
    from delivered order by ordinality;
end $$;

-- Acknowledges leases. An id stands for one delivery, so it does not matter if its node was considered dead
-- meanwhile, as long as the message has not gone back. Returns the leases that still existed.
create or replace function nuncius.settle_many(p_ids bigint[])
returns bigint[] language plpgsql as $$
declare
    v_settled bigint[];
begin
    with settled as (
        delete from nuncius.leases where lease_id = any (p_ids) returning lease_id
    )
    select coalesce(array_agg(lease_id), '{}') into v_settled from settled;
    return v_settled;
end $$;

-- The history of a dead letter, as headers.
create or replace function nuncius.obituary(
    p_destination text, p_id text, p_attempts integer, p_last_failure timestamptz, p_reason text
) returns jsonb language sql stable as $$
    select jsonb_build_object('dead-destination', p_destination, 'dead-message-id', p_id,
        'dead-attempts', p_attempts::text, 'dead-reason', coalesce(p_reason, ''),
        'dead-last-failure', to_char(p_last_failure at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))
$$;

-- The targets of waiting leases: back into their queue or, after p_most attempts, into the queue "dead/NAME"
-- (dead letters themselves are retried for ever).
create or replace function nuncius.ways_of_leases(p_ids bigint[], p_most integer)
returns table (lease_id bigint, queue_id integer, queue_name text, dead_name text) language sql stable as $$
    select l.lease_id, q.queue_id, q.queue_name,
        case when l.attempts >= p_most and q.queue_name not like 'dead/%'
            then left('dead/' || q.queue_name, 255) end
    from nuncius.leases l join nuncius.queues q using (queue_id)
    where l.lease_id = any (p_ids) and l.holder = 0
$$;

-- Moves waiting leases to their targets now; dead letters get their history as headers. Leases for a queue that is
-- locked by a long transaction stay. Returns the queues that have new messages, the queues that are locked, and how
-- many messages moved.
create or replace function nuncius.move_leases(
    p_ids bigint[], p_most integer, out queues integer[], out busy integer[], out moved bigint
) language plpgsql set lock_timeout = '20ms' as $$
declare
    v_ids bigint[];
    v_sources integer[];
    v_targets integer[];
begin
    select array_agg(w.lease_id), array_agg(w.queue_id), array_agg(coalesce(d.queue_id, w.queue_id))
    into v_ids, v_sources, v_targets
    from nuncius.ways_of_leases(p_ids, p_most) w left join nuncius.queues d on d.queue_name = w.dead_name;
    busy := nuncius.take_locks(78002, v_targets, v_sources, false);
    -- From here on no other transaction puts into these queues, nor deletes them: new ids are in commit order.
    with free as (
        delete from nuncius.leases l using unnest(v_ids, v_targets) w(id, target)
        where l.lease_id = w.id and l.holder = 0 and l.queue_id <> all (busy)
            and exists (select from nuncius.queues q where q.queue_id = w.target)
        returning l.*, w.target
    ), placed as (
        select f.*, nextval(pg_get_serial_sequence('nuncius.messages', 'message_id')) as new_id
        from (select * from free order by lease_id) f
    ), remembered as (
        insert into nuncius.returned
            (message_id, queue_id, receiver_id, priority, attempts, origin, last_failure, reason)
        select new_id, queue_id, receiver_id, priority, attempts, origin, last_failure, reason
        from placed where target = queue_id
    ), stored as (
        insert into nuncius.messages (message_id, queue_id, sender_id, receiver_id, context, priority,
            time_of_arrival, message, headers)
        select p.new_id, p.target, p.sender_id, p.receiver_id, p.context, p.priority,
            case when p.target = p.queue_id then p.time_of_arrival else clock_timestamp() end, p.message,
            case when p.target = p.queue_id then p.headers else coalesce(p.headers, '{}') || nuncius.obituary(
                '/queue/' || q.queue_name, 'q-' || p.origin, p.attempts, p.last_failure, p.reason) end
        from placed p left join nuncius.queues q on q.queue_id = p.queue_id
        returning queue_id
    )
    select coalesce(array_agg(distinct queue_id), '{}'), count(*) into queues, moved from stored;
end $$;

-- Makes the queues for dead letters that these leases need.
create or replace function nuncius.ensure_dead_queues(p_ids bigint[], p_most integer)
returns void language plpgsql as $$
begin
    insert into nuncius.queues (queue_name)
    select distinct dead_name from nuncius.ways_of_leases(p_ids, p_most)
    where dead_name is not null
        and not exists (select from nuncius.queues q where q.queue_name = dead_name)
    on conflict do nothing;
    if found then
        perform pg_notify('nuncius', 'c');
    end if;
end $$;

-- Releases leases. If the reason is null the message was never delivered: it goes back at once, and that is not
-- counted. Else the attempt failed: the message is redelivered after p_delay seconds or, after p_most attempts,
-- becomes a dead letter. Idempotent. Returns the queues that have new messages.
create or replace function nuncius.release_many(
    p_ids bigint[], p_reasons text[], p_delay double precision, p_most integer
) returns integer[] language plpgsql as $$
declare
    v_due bigint[];
    v_queues integer[] := '{}';
begin
    perform from nuncius.leases where lease_id = any (p_ids) and holder <> 0 order by lease_id for update;
    with released as (
        update nuncius.leases l
        set holder = 0,
            attempts = l.attempts - case when r.reason is null then 1 else 0 end,
            due_at = clock_timestamp() + make_interval(secs => case when r.reason is null then 0 else p_delay end),
            last_failure = case when r.reason is null then l.last_failure else clock_timestamp() end,
            reason = coalesce(r.reason, l.reason)
        from unnest(p_ids, p_reasons) r(id, reason)
        where l.lease_id = r.id and l.holder <> 0
        returning l.lease_id, r.reason is null or l.attempts >= p_most as is_due
    )
    select array_agg(lease_id) into v_due from released where is_due;
    if v_due is not null then
        perform nuncius.ensure_dead_queues(v_due, p_most);
        -- A dead letter that failed waits for its retry like any message.
        v_due := array(select w.lease_id from nuncius.ways_of_leases(v_due, p_most) w
            join nuncius.leases l using (lease_id)
            where w.dead_name is not null or l.due_at <= clock_timestamp());
        select queues into v_queues from nuncius.move_leases(v_due, p_most);
    end if;
    return v_queues;
end $$;

-- Returns messages leased by calls whose answer was lost, because the connection broke. They were never delivered.
create or replace function nuncius.reclaim_leases(p_holder integer, p_batches bigint[], p_most integer)
returns integer[] language plpgsql as $$
declare
    v_ids bigint[] := array(
        select lease_id from nuncius.leases where holder = p_holder and batch = any (p_batches));
begin
    return nuncius.release_many(v_ids, array_fill(null::text, array[cardinality(v_ids)]), 0, p_most);
end $$;

-- Nodes that are gone. This transaction holds their locks until its end.
create or replace function nuncius.dead_holders()
returns setof integer language sql as $$
    select holder from nuncius.holders where pg_try_advisory_xact_lock(78009, holder)
$$;

-- Counts leases whose time is over as failed, and moves messages back whose wait is over: in one queue or, if it is
-- null, in all. Returns how many moved, and the queues that got messages back; the caller announces them.
create or replace function nuncius.return_due(
    p_delay double precision, p_most integer, p_limit integer default 1000, p_queue integer default null,
    out moved bigint, out queues integer[]
) language plpgsql as $$
declare
    v_now timestamptz := clock_timestamp();
    v_ids bigint[] := array(select lease_id from nuncius.leases
        where holder = -1 and due_at <= v_now and (p_queue is null or queue_id = p_queue)
        order by due_at limit p_limit for update skip locked);
    v_busy integer[] := '{}';
    v_step record;
begin
    moved := cardinality(v_ids);
    queues := '{}';
    if v_ids <> '{}' then
        queues := nuncius.release_many(
            v_ids, array_fill('not acknowledged in time'::text, array[cardinality(v_ids)]), p_delay, p_most);
        v_now := clock_timestamp();  -- without a delay they are due now
    end if;
    loop
        v_ids := array(select lease_id from nuncius.leases
            where holder = 0 and due_at <= v_now and (p_queue is null or queue_id = p_queue)
                and queue_id <> all (v_busy)
            order by due_at limit p_limit for update skip locked);  -- another transaction may be settling one
        exit when v_ids = '{}';
        perform nuncius.ensure_dead_queues(v_ids, p_most);
        select * into v_step from nuncius.move_leases(v_ids, p_most);
        moved := moved + v_step.moved;
        queues := queues || v_step.queues;
        v_busy := v_busy || v_step.busy;
        exit when v_step.busy = '{}';  -- else there may be others behind those that are locked
    end loop;
end $$;

-- Moves messages back into their queue when their wait is over, and counts leases whose time is over as failed. With
-- p_judge, leases of dead nodes go back, too, and the subscriptions that lived by them end. One bounded step; the
-- caller goes on while messages moved. Returns the queues that got messages back; null while another node does it.
create or replace function nuncius.return_leases(
    p_delay double precision, p_most integer, p_judge boolean default true, p_limit integer default 1000,
    out moved bigint, out queues integer[]
) language plpgsql as $$
declare
    v_holder integer;
    v_ids bigint[];
    v_step record;
begin
    if not pg_try_advisory_xact_lock(78005, 3) then
        return;
    end if;
    moved := 0;
    queues := '{}';
    if p_judge then
        for v_holder in select nuncius.dead_holders() loop
            v_ids := array(select lease_id from nuncius.leases where holder = v_holder);
            queues := queues || nuncius.release_many(
                v_ids, array_fill('the node that delivered it is gone'::text, array[cardinality(v_ids)]),
                p_delay, p_most);
            moved := moved + cardinality(v_ids) + nuncius.end_subscriptions(array(
                select subscription_id from nuncius.subscriptions where holder = v_holder), v_holder);
            delete from nuncius.holders where holder = v_holder;
        end loop;
    end if;
    select * into v_step from nuncius.return_due(p_delay, p_most, p_limit);
    moved := moved + v_step.moved;
    queues := queues || v_step.queues;
    if queues <> '{}' then
        perform nuncius.announce(null, queues);
    end if;
end $$;
