-- Locks. A transaction that adds to a partition or a queue, or takes from a queue, holds its advisory lock to
-- its end; ids and offsets are therefore in commit order, and no reader sees a gap.
--   78001 adding to a partition     78002 adding to a queue     78003 taking from a queue
--   78004 a publisher's counts      78005 the collector         78006 migrations
--   78007 nodes that listen (shared, for the life of the node)
--   78008 the archive               78009 a holder of leases (for the life of the node)
--   78010 the cluster               78011 a run of a job (for the life of the run)
--   78012 changing keys             78013 the owner of the keys (for the life of the node)
--   78014 a broker's own store (for the life of the broker)
--   78015 a run of the job timelines
--   78021 a consumer's place        78022 a group of consumers

-- Takes the locks of all ids, in order. A caller that waits gets them all. One that does not wait is
-- patient once, for its own lock_timeout (a node's batches hold locks for milliseconds). Ids that are
-- still locked then, by a long transaction, do not keep the others waiting: the procedure returns
-- their targets (p_targets and p_ids go together, item by item).
create or replace function nuncius.take_locks(
    p_class integer, p_ids integer[], p_targets integer[], p_wait boolean
) returns integer[] language plpgsql as $$
declare
    v_id integer;
    v_busy integer[];
begin
    -- Mostly there is one, and it is free: then there is no need for a query.
    if cardinality(p_ids) = 1 and (p_ids[1] is null or pg_try_advisory_xact_lock(p_class, p_ids[1])) then
        return '{}';
    end if;
    -- Nearly always all of them are free: one query takes them, in order, up to the first that is not.
    if p_wait is not true and not exists (
        select from (select distinct i from unnest(p_ids) i where i is not null order by i offset 0) f
        where not pg_try_advisory_xact_lock(p_class, i)) then
        return '{}';
    end if;
    for v_id in select distinct i from unnest(p_ids) i where i is not null order by i loop
        if p_wait then
            perform pg_advisory_xact_lock(p_class, v_id);
        elsif not pg_try_advisory_xact_lock(p_class, v_id) then
            if v_busy is not null then
                v_busy := v_busy || v_id;
                continue;
            end if;
            begin
                perform pg_advisory_xact_lock(p_class, v_id);
            exception when lock_not_available then
                v_busy := array[v_id];
            end;
        end if;
    end loop;
    if v_busy is null then
        return '{}';
    end if;
    return array(select target from unnest(p_ids, p_targets) t(id, target) where id = any (v_busy));
end $$;

-- Notifies listening nodes, when this transaction commits, of new messages in these topics and queues.
-- The payload of a notification is short; beyond its limit it says "look everywhere".
create or replace function nuncius.announce(p_topics integer[], p_queues integer[])
returns void language plpgsql as $$
declare
    v_payload text := concat_ws(' ',
        (select string_agg(distinct 't' || i, ' ') from unnest(p_topics) i),
        (select string_agg(distinct 'q' || i, ' ') from unnest(p_queues) i));
begin
    perform pg_notify('nuncius', case when length(v_payload) < 7000 then v_payload else '*' end);
end $$;

-- Returns true if this transaction keeps its first snapshot, so it misses what was committed before it got a lock.
create or replace function nuncius.keeps_snapshot()
returns boolean language sql stable as $$
    select current_setting('transaction_isolation') in ('repeatable read', 'serializable')
$$;
