-- Leases for a time: for clients without a lasting connection, whose end would tell that they are gone. Their holder
-- is -1 and their end is in due_at, where every node finds it: all nodes give a client the same answer. When the
-- time is over, return_leases counts the attempt as failed.
--
-- Leases are looked up by their ids. `holder + 0` keeps the planner from the index by due_at, which has few live rows
-- and, until the next vacuum, all settled ones.

-- Makes leases of a node, or leases for a time, leases for so many seconds from now. Idempotent. Returns those that
-- still existed.
create or replace function nuncius.time_leases(p_holder integer, p_ids bigint[], p_seconds double precision)
returns bigint[] language plpgsql as $$
declare
    v_timed bigint[];
begin
    with timed as (
        update nuncius.leases
        set holder = -1, due_at = clock_timestamp() + make_interval(secs => p_seconds)
        where lease_id = any (p_ids) and holder + 0 in (p_holder, -1)
        returning lease_id
    )
    select coalesce(array_agg(lease_id), '{}') into v_timed from timed;
    return v_timed;
end $$;

-- Returns those of the leases that are not leases for a time of this queue (any more). The others cannot end before
-- the transaction does.
create or replace function nuncius.ended_leases(p_queue integer, p_ids bigint[])
returns bigint[] language plpgsql as $$
declare
    v_held bigint[] := array(select lease_id from nuncius.leases
        where lease_id = any (p_ids) and queue_id = p_queue and holder + 0 = -1 and due_at > clock_timestamp()
        order by lease_id for update);
begin
    return array(select distinct id from unnest(p_ids) id where id <> all (v_held) order by id);
end $$;

-- The three operations of a client on its leases for a time: settle, release, extend. Each applies to all of them or,
-- if some have ended, to none. Returns those that have ended.
create or replace function nuncius.settle_timed(p_queue integer, p_ids bigint[])
returns bigint[] language plpgsql as $$
declare
    v_ended bigint[] := nuncius.ended_leases(p_queue, p_ids);
begin
    if v_ended = '{}' then
        perform nuncius.settle_many(p_ids);
    end if;
    return v_ended;
end $$;

create or replace function nuncius.release_timed(
    p_queue integer, p_ids bigint[], p_reason text, p_delay double precision, p_most integer,
    out ended bigint[], out queues integer[]
) language plpgsql as $$
begin
    queues := '{}';
    ended := nuncius.ended_leases(p_queue, p_ids);
    if ended = '{}' then
        queues := nuncius.release_many(p_ids, array_fill(p_reason, array[cardinality(p_ids)]), p_delay, p_most);
    end if;
end $$;

create or replace function nuncius.extend_timed(p_queue integer, p_ids bigint[], p_seconds double precision)
returns bigint[] language plpgsql as $$
declare
    v_ended bigint[] := nuncius.ended_leases(p_queue, p_ids);
begin
    if v_ended = '{}' then
        perform nuncius.time_leases(-1, p_ids, p_seconds);
    end if;
    return v_ended;
end $$;
