-- Leases for workers that call SQL: by the name of the queue, for a time. Workers of one queue wait for each other only
-- while a transaction with a call of `lease` is open, so keep it short and do the work after it.

-- Returns the id of a queue; raises an error if it does not exist.
create or replace function nuncius.queue_named(p_name text)
returns integer language plpgsql stable as $$
declare
    v_id integer := (select queue_id from nuncius.queues where queue_name = p_name);
begin
    if v_id is null then
        raise undefined_object using message = format('there is no queue %L', p_name),
            hint = 'nuncius.create_queue(name) makes one';
    end if;
    return v_id;
end $$;

-- Checks of arguments: a time for a lease or a pause, and a count.
create or replace function nuncius.require_seconds(p_seconds double precision)
returns void language plpgsql immutable as $$
begin
    if (p_seconds between 0 and 1e9) is not true then
        raise invalid_parameter_value using
            message = format('%s is not a number of seconds from 0 to 1000000000', coalesce(p_seconds::text, 'null'));
    end if;
end $$;

create or replace function nuncius.require_at_least(p_least integer, p_value integer)
returns void language plpgsql immutable as $$
begin
    if (p_value >= p_least) is not true then
        raise invalid_parameter_value using
            message = format('%s is not a number from %s on', coalesce(p_value::text, 'null'), p_least);
    end if;
end $$;

-- Moves overdue messages back to a queue, and keeps the time of that in the session. Returns how many moved.
create or replace function nuncius.return_overdue(p_queue integer, p_most integer)
returns bigint language plpgsql as $$
declare
    v_returned record;
begin
    select * into v_returned from nuncius.return_due(0, p_most, 1000, p_queue);
    if v_returned.queues <> '{}' then
        perform nuncius.announce(null, v_returned.queues);
    end if;
    perform set_config('nuncius.overdue_' || p_queue, extract(epoch from clock_timestamp())::text, false);
    return v_returned.moved;
end $$;

-- Leases up to `count` messages, the highest priority first, for so many seconds: those for any receiver and those for
-- this one. It moves overdue messages back to the queue, even if no node is running: leases whose time is over, as
-- failed attempts, and messages whose retry delay is over. After max_attempts a message goes to the queue dead/NAME
-- instead. `attempts` is the number of deliveries before this one.
--
-- Both searches, for messages and for overdue ones, pass all rows settled since the last vacuum. So a session begins
-- after the messages that it leased before, and as long as it finds enough it searches for overdue ones once a second.
create or replace function nuncius.lease(
    queue text, count integer default 1, seconds double precision default 30, receiver integer default 0,
    max_attempts integer default 10
) returns table (
    lease_id bigint, body bytea, headers jsonb, priority smallint, attempts integer, time_of_arrival timestamptz,
    sender_id integer, receiver_id integer, context integer
) language plpgsql set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    v_queue integer := nuncius.queue_named(queue);
    v_looked double precision := nullif(current_setting('nuncius.overdue_' || v_queue, true), '');
    v_is_time boolean := (v_looked > extract(epoch from clock_timestamp()) - 1) is not true;
    v_ids bigint[];
begin
    perform nuncius.require_seconds(seconds),
        nuncius.require_at_least(0, count), nuncius.require_at_least(0, receiver),
        nuncius.require_at_least(1, max_attempts);
    -- The lock comes first, so that return_due never holds a lock while this call waits.
    perform nuncius.take_locks(78003, array[v_queue], array[v_queue], true);
    if v_is_time then
        perform nuncius.return_overdue(v_queue, max_attempts);
    end if;
    v_ids := nuncius.lease_for_worker(v_queue, receiver, count);
    if not v_is_time and cardinality(v_ids) < count and nuncius.return_overdue(v_queue, max_attempts) > 0 then
        v_ids := v_ids || nuncius.lease_for_worker(v_queue, receiver, count - cardinality(v_ids));
    end if;
    perform nuncius.time_leases(-1, v_ids, seconds);
    return query
    select l.lease_id, l.message, l.headers, l.priority, l.attempts - 1, l.time_of_arrival, l.sender_id, l.receiver_id,
        l.context
    from nuncius.leases l where l.lease_id = any (v_ids)
    order by l.priority desc, l.lease_id;
end $$;

-- Leases messages to no node, and keeps the last id of each priority in the session, to begin there the next time. No
-- message is missed: ids are in commit order, and a rollback undoes the kept ids. (Only a prepared transaction does
-- not, so if there may be any, the session begins at the start.) Returns the ids; the leases have no end yet.
create or replace function nuncius.lease_for_worker(p_queue integer, p_receiver integer, p_count integer)
returns bigint[] language plpgsql as $$
declare
    v_setting text := format('nuncius.place_%s_%s', p_queue, p_receiver);
    v_after bigint[] := case when current_setting('max_prepared_transactions') = '0'
        then nullif(current_setting(v_setting, true), '') end;
    v_ids bigint[];
begin
    with leased as materialized (
        select message_id, priority + case when receiver_id = 0 then 0 else 10 end as n
        from nuncius.lease_many(
            -1, 0, array[p_queue], array[p_receiver], '{0}', '{0}', '{1}', array[p_count], v_after)
        where request > 0
    )
    select array(select message_id from leased), array(
        select coalesce((select max(message_id) from leased l where l.n = place.n), v_after[place.n], 0)
        from generate_series(1, 20) place(n) order by place.n)
    into v_ids, v_after;
    perform set_config(v_setting, v_after::text, false);
    return v_ids;
end $$;

-- Raises an error if any leases have ended (p_ended is neither null nor empty). The caller's transaction then fails,
-- which is right, because another worker may do the same work.
create or replace function nuncius.refuse_ended(p_queue text, p_ended bigint[])
returns void language plpgsql as $$
begin
    if p_ended <> '{}' then
        raise object_not_in_prerequisite_state using
            message = format('not leased from queue %L any more: %s', p_queue, array_to_string(p_ended[:100], ', ')),
            detail = 'Their time is over, or they were settled or released before. Nothing was changed.',
            hint = 'roll back, and lease again; ask for more seconds, or call nuncius.extend(...) in time';
    end if;
end $$;

-- Acknowledges these messages: they are removed for good. Returns their number. Until the transaction ends no other
-- worker gets them.
create or replace function nuncius.settle(queue text, lease_ids bigint[])
returns integer language plpgsql as $$
begin
    perform nuncius.refuse_ended(queue, nuncius.settle_timed(nuncius.queue_named(queue), lease_ids));
    return (select count(distinct id) from unnest(lease_ids) id);
end $$;

-- Rejects these messages. Without a reason they go back at once, and the attempt is not counted. With a reason the
-- attempt failed: they go back after the delay in seconds (2, if there is none), or to the queue dead/NAME after
-- max_attempts. Returns their number.
create or replace function nuncius.release(
    queue text, lease_ids bigint[], reason text default null, delay double precision default null,
    max_attempts integer default 10
) returns integer language plpgsql as $$
declare
    v_released record;
begin
    if reason is null and delay is not null then
        raise invalid_parameter_value using message = 'a delay needs a reason',
            hint = 'a message that is released without a reason goes back at once, and the attempt is not counted';
    end if;
    perform nuncius.require_seconds(coalesce(delay, 2)), nuncius.require_at_least(1, max_attempts);
    select * into v_released from nuncius.release_timed(
        nuncius.queue_named(queue), coalesce(lease_ids, '{}'), reason, coalesce(delay, 2), max_attempts);
    perform nuncius.refuse_ended(queue, v_released.ended);
    if v_released.queues <> '{}' then
        perform nuncius.announce(null, v_released.queues);
    end if;
    return (select count(distinct id) from unnest(lease_ids) id);
end $$;

-- Extends the leases of these messages to so many seconds from now. Returns their number.
create or replace function nuncius.extend(queue text, lease_ids bigint[], seconds double precision default 30)
returns integer language plpgsql as $$
begin
    perform nuncius.require_seconds(seconds);
    perform nuncius.refuse_ended(queue, nuncius.extend_timed(nuncius.queue_named(queue), lease_ids, seconds));
    return (select count(distinct id) from unnest(lease_ids) id);
end $$;
