-- The collector: retention, and removal of superseded rows. Any node may call it at any time; one works,
-- the others get null.

-- Returns the offset below which a partition's entries may be removed, by its topic's retention; drops no more than
-- p_limit. Null: no such partition.
create or replace function nuncius.retained_from(p_partition_id integer, p_limit integer)
returns bigint language plpgsql as $$
declare
    v record;
    v_next bigint;
    v_from bigint;
    v_held bigint;
    v_seen bigint;
    v_excess bigint;
    v_dropped bigint;
begin
    select p.*, t.retention, t.retention_seconds, t.retention_bytes into v
    from nuncius.partitions p join nuncius.topics t using (topic_id)
    where p.partition_id = p_partition_id
    for update of p;  -- a purge in between would spoil the sums
    if not found then
        return null;  -- its topic was just deleted
    end if;
    v_next := nuncius.next_offset(p_partition_id);  -- before the look at subscriptions: new ones need later entries

    select min(least(coalesce(w.position, 0), f.entry_offset)) into v_held
    from nuncius.subscriptions s
    left join lateral (
        select max(c.position) as position from nuncius.positions c
        where c.subscription_id = s.subscription_id and c.partition_id = p_partition_id
    ) w on true
    left join lateral (  -- failed entries are needed for redelivery
        select min(c.entry_offset) as entry_offset from nuncius.failures c
        where c.subscription_id = s.subscription_id and c.partition_id = p_partition_id
    ) f on true
    where s.topic_id = v.topic_id and (s.holds_retention or v.retention = 'subscribers');

    case v.retention
    when 'forever' then
        v_from := v.first_offset;
    when 'subscribers' then
        v_from := coalesce(v_held, v_next);
    when 'time' then
        select max(e.entry_offset) + 1 into v_from from (
            select entry_offset, time_of_arrival from nuncius.entries
            where partition_id = p_partition_id and entry_offset >= v.first_offset
            order by entry_offset limit p_limit) e
        where e.time_of_arrival < clock_timestamp()
            - make_interval(secs => least(v.retention_seconds, 3155760000));  -- at most a century
    when 'size' then
        loop  -- until the size exceeds the retention, or all entries are measured
            select coalesce(max(entry_offset) + 1, v.measured_to), coalesce(sum(octet_length(body)), 0)
                + v.measured_bytes, count(*) into v.measured_to, v.measured_bytes, v_seen
            from (
                select entry_offset, body from nuncius.entries
                where partition_id = p_partition_id and entry_offset >= v.measured_to
                order by entry_offset limit p_limit) e;
            v_excess := v.measured_bytes - v.retention_bytes;
            exit when v_excess > 0 or v_seen < p_limit;
        end loop;
        select max(e.entry_offset) + 1, sum(e.bytes) into v_from, v_dropped from (
            select entry_offset, octet_length(body) as bytes,
                sum(octet_length(body)) over (order by entry_offset) - octet_length(body) as before
            from (select entry_offset, body from nuncius.entries
                where partition_id = p_partition_id and entry_offset >= v.first_offset
                    and entry_offset < least(v.measured_to, v_held)
                order by entry_offset limit p_limit) f) e
        where e.before < v_excess;
        update nuncius.partitions
        set measured_to = v.measured_to, measured_bytes = v.measured_bytes - coalesce(v_dropped, 0)
        where partition_id = p_partition_id;
    end case;
    return greatest(v.first_offset, least(coalesce(v_from, v.first_offset), v_held));
end $$;

-- Carries out one bounded step of retention and removal. Returns how many rows it removed. The caller repeats
-- it while that is not 0.
create or replace function nuncius.collect(p_limit integer default 10000)
returns bigint language plpgsql as $$
declare
    v_id integer;
    v_from bigint;
    v_rows bigint;
    v_removed bigint := 0;
begin
    if not pg_try_advisory_xact_lock(78005, 1) then
        return null;
    end if;
    for v_id in
        select p.partition_id from nuncius.partitions p join nuncius.topics t using (topic_id)
        where t.retention <> 'forever' order by 1
    loop
        v_from := nuncius.retained_from(v_id, p_limit);
        update nuncius.partitions set first_offset = v_from
        where partition_id = v_id and first_offset < v_from;
    end loop;

    for v_id, v_from in
        select partition_id, least(removed_to + p_limit, first_offset) from nuncius.partitions
        where removed_to < first_offset order by 1
    loop
        delete from nuncius.entries e using nuncius.partitions p
        where p.partition_id = v_id and e.partition_id = v_id
            and e.entry_offset >= p.removed_to and e.entry_offset < v_from;
        get diagnostics v_rows = row_count;
        v_removed := v_removed + v_rows;
        update nuncius.partitions set removed_to = v_from where partition_id = v_id;
    end loop;

    for v_id in select partition_id from nuncius.condemned order by 1 loop
        delete from nuncius.entries where partition_id = v_id and entry_offset in (
            select entry_offset from nuncius.entries where partition_id = v_id
            order by entry_offset limit p_limit);
        get diagnostics v_rows = row_count;
        v_removed := v_removed + v_rows;
        if v_rows = 0 then
            delete from nuncius.condemned where partition_id = v_id;
        end if;
    end loop;
    return v_removed;
end $$;

-- Removes superseded rows: all but the highest count of a publisher, all but the highest position and
-- delivery of a subscription, rows of subscriptions that have ended, the history of messages that are taken
-- since, publishers of one connection that have been silent for a day.
create or replace function nuncius.tidy()
returns bigint language plpgsql as $$
declare
    v_rows bigint;
    v_removed bigint;
begin
    if not pg_try_advisory_xact_lock(78005, 2) then
        return null;
    end if;
    delete from nuncius.publisher_counts c using (
        select publisher_id, kind, target_id, max(publisher_count) as highest
        from nuncius.publisher_counts group by 1, 2, 3 having count(*) > 1) h
    where c.publisher_id = h.publisher_id and c.kind = h.kind and c.target_id = h.target_id
        and c.publisher_count < h.highest;
    get diagnostics v_removed = row_count;

    delete from nuncius.positions c using (
        select subscription_id, partition_id, max(position) as highest
        from nuncius.positions group by 1, 2 having count(*) > 1) h
    where c.subscription_id = h.subscription_id and c.partition_id = h.partition_id
        and c.position < h.highest
        -- A caller that lost the answer looks for its number until it gives up.
        and (c.mover is null or c.confirmed_at < clock_timestamp() - interval '2 minutes');
    get diagnostics v_rows = row_count;
    v_removed := v_removed + v_rows;

    delete from nuncius.deliveries d where exists (
        select from nuncius.deliveries h
        where h.subscription_id = d.subscription_id and h.partition_id = d.partition_id
            and h.delivered_to > d.delivered_to);
    get diagnostics v_rows = row_count;
    v_removed := v_removed + v_rows;

    with positions as (
        delete from nuncius.positions c
        where not exists (select from nuncius.subscriptions s where s.subscription_id = c.subscription_id)
        returning 1
    ), deliveries as (
        delete from nuncius.deliveries c
        where not exists (select from nuncius.subscriptions s where s.subscription_id = c.subscription_id)
        returning 1
    ), failures as (
        delete from nuncius.failures c
        where not exists (select from nuncius.subscriptions s where s.subscription_id = c.subscription_id)
        returning 1
    )
    select v_removed + (select count(*) from positions) + (select count(*) from deliveries)
        + (select count(*) from failures) into v_removed;

    delete from nuncius.returned r where not exists (
        select from nuncius.messages m
        where m.queue_id = r.queue_id and m.receiver_id = r.receiver_id and m.priority = r.priority
            and m.message_id = r.message_id);
    get diagnostics v_rows = row_count;
    v_removed := v_removed + v_rows;

    -- A node that was considered dead by mistake, and died before it could correct that, becomes a holder again.
    insert into nuncius.holders
    select holder from nuncius.leases where holder > 0
    union select holder from nuncius.subscriptions where holder is not null
    on conflict do nothing;

    with silent as (
        select p.publisher_id from nuncius.publishers p
        where not p.lasting and p.created_at < now() - interval '1 day'
            and not exists (select from nuncius.publisher_counts c
                where c.publisher_id = p.publisher_id and c.counted_at > now() - interval '1 day')
    ), forgotten as (
        delete from nuncius.publisher_counts c using silent s where c.publisher_id = s.publisher_id
    )
    delete from nuncius.publishers p using silent s where p.publisher_id = s.publisher_id;
    get diagnostics v_rows = row_count;
    return v_removed + v_rows;
end $$;
