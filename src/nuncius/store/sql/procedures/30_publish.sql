-- Publishing. A call consists of sends, runs and entries. A send is entries of one topic and one publisher
-- whose counts go up by one; a run is the part of a send that goes into one partition.
-- Sends are checked and runs are placed as a whole, so that the cost is paid once, not per entry.

-- Returns the partition of a key in a topic with that many partitions. Nodes compute the same.
create or replace function nuncius.partition_of(p_key text, p_partitions integer)
returns integer language sql immutable as $$
    select 1 + (('x' || substr(md5(p_key), 1, 8))::bit(32)::bigint % p_partitions)::integer
$$;

-- For a transaction that keeps its snapshot, when it has its locks: raises a serialization failure if these partitions
-- were published to, emptied or deleted after the snapshot was taken. With counts it checks all partitions of the
-- topics, because a publisher may have used another one, and new partitions. The snapshot shows none of that; a lock on
-- a row does, and so does an insert at the offset that would be the next free one. Both are undone at once, because the
-- collector must not wait for the end of this transaction.
create or replace function nuncius.refuse_old_snapshot(p_partition_ids integer[], p_topics integer[], p_counted boolean)
returns void language plpgsql as $$
declare
    v_ids integer[] := p_partition_ids;
begin
    if p_counted then
        v_ids := array(select partition_id from nuncius.partitions where topic_id = any (p_topics));
        insert into nuncius.partitions (partition_id, topic_id, partition)
        select -topic_id, topic_id, partition_count + 1 from nuncius.topics where topic_id = any (p_topics);
    end if;
    perform from nuncius.partitions where partition_id = any (v_ids) for share;
    insert into nuncius.entries (partition_id, entry_offset, body)
    select partition_id, nuncius.next_offset(partition_id), '' from nuncius.partitions
    where partition_id = any (v_ids) and store_id = 1;
    raise sqlstate 'NU000';
exception
    when sqlstate 'NU000' then
        return;
    when unique_violation then
        raise serialization_failure using
            message = 'the topic has changed since this transaction took its snapshot',
            hint = 'repeat the transaction, or publish from the level READ COMMITTED';
end $$;

-- Publishes in one transaction.
--
-- One item per send: p_topics, p_layouts (the number of partitions that the caller's choice was based on; null:
-- not checked), p_publishers and p_counts (the publisher and the count of the first entry, or null).
-- One item per run: p_sends (the ordinal of its send), p_partitions, p_sizes.
-- One item per entry, run after run: p_numbers (its place within its send, from 0; null as a whole if every
-- send is one run), p_keys, p_headers (JSON text), p_bodies; keys and headers may be null as a whole.
--
-- Returns per run: `bases`, the offset of its first new entry, and `skipped`, how many of its entries the
-- publisher had sent before. A negative base says why nothing was stored:
--   -1 all sent before   -2 no such topic   -3 busy, see take_locks   -4 another number of partitions
--   -5 the partition is in another store
-- Promises: offsets are dense and in commit order; a publisher's count is stored once; a run is stored
-- whole or not at all; if one run of a topic is busy, all are, so that a retry keeps a publisher's order.
create or replace function nuncius.publish_many(
    p_topics integer[], p_layouts integer[], p_publishers integer[], p_counts bigint[],
    p_sends integer[], p_partitions integer[], p_sizes integer[],
    p_numbers integer[], p_keys text[], p_headers text[], p_bodies bytea[],
    p_wait boolean default true, p_notify boolean default true,
    out bases bigint[], out skipped integer[]
) language plpgsql as $$
declare
    v_ids integer[];        -- partition of each run, null where it has none
    v_run_topics integer[]; -- topic of each run
    v_firsts integer[];     -- ordinal of the first new entry of each run
    v_lasts integer[];      -- ordinal of the last
    v_stops integer[];      -- why a send cannot be stored
    v_lengths integer[];    -- number of entries of each send
    v_seen bigint[];        -- how many of them the publisher had sent before
    v_order integer[] := '{1}'; -- runs, partition by partition
    v_ends bigint[];        -- the next offset of the partition of each run
    v_end integer := 0;
    v_send integer;
    v_stop integer;
    v_busy integer[];
    v_partitions integer;
    v_id integer;
    v_previous integer := 0;
    v_next bigint;
    i integer;
begin
    for i in 1 .. cardinality(p_sends) loop
        v_send := p_sends[i];
        v_run_topics[i] := p_topics[v_send];
        select t.partition_count, p.partition_id into v_partitions, v_id
        from nuncius.topics t
        left join nuncius.partitions p on p.topic_id = t.topic_id and p.partition = p_partitions[i]
        where t.topic_id = p_topics[v_send];
        v_stops[v_send] := coalesce(v_stops[v_send], case when not found then -2
            when v_id is null or v_partitions <> p_layouts[v_send] then -4 end);
        v_ids[i] := v_id;
        v_lengths[v_send] := coalesce(v_lengths[v_send], 0) + p_sizes[i];
        skipped[i] := 0;
        v_firsts[i] := v_end + 1;
        v_end := v_end + p_sizes[i];
        v_lasts[i] := v_end;
    end loop;
    if v_end is distinct from cardinality(p_bodies) or 0 > any (p_sizes)
        or cardinality(p_layouts) <> cardinality(p_topics) or cardinality(p_publishers) <> cardinality(p_topics)
        or cardinality(p_counts) <> cardinality(p_topics) or cardinality(p_partitions) <> cardinality(p_sends)
        or cardinality(p_numbers) <> v_end or cardinality(p_keys) <> v_end or cardinality(p_headers) <> v_end then
        raise invalid_parameter_value using message = 'these arrays do not go together',
            hint = 'p_topics, p_layouts, p_publishers and p_counts have one item a send, p_sends, p_partitions and '
                'p_sizes one item a run, the others one item an entry, and p_sizes adds up to the number of entries';
    end if;

    v_busy := nuncius.take_locks(78001, v_ids, v_run_topics, p_wait);
    if p_publishers is not null then
        v_busy := v_busy || nuncius.take_locks(78004, p_publishers, p_topics, p_wait);
    end if;
    if nuncius.keeps_snapshot() then
        perform nuncius.refuse_old_snapshot(v_ids, p_topics, array_remove(p_publishers, null) <> '{}');
    end if;

    -- From here on no other transaction adds to these partitions or counts for these publishers, and partitions
    -- deleted while this one waited for its locks are gone. The end of each partition is looked up once.
    if cardinality(p_sends) > 1 then
        v_order := array(select n from unnest(v_ids) with ordinality r(id, n) order by id, n);
    end if;
    foreach i in array v_order loop
        continue when v_ids[i] is null;
        if v_ids[i] <> v_previous then
            v_previous := v_ids[i];
            select case when p.store_id <> 1 then -5 end, greatest(p.first_offset, 1 + (
                select e.entry_offset from nuncius.entries e where e.partition_id = p.partition_id
                order by e.entry_offset desc limit 1)) into v_stop, v_next
            from nuncius.partitions p where p.partition_id = v_previous;
            if not found then
                v_stop := -2;
            end if;
        end if;
        v_ends[i] := v_next;
        if v_stop < 0 then
            v_stops[p_sends[i]] := v_stop;
        end if;
    end loop;
    if p_publishers is not null then
        for i in 1 .. cardinality(p_topics) loop
            continue when p_publishers[i] is null or v_stops[i] < 0 or p_topics[i] = any (v_busy);
            select c.publisher_count - p_counts[i] + 1 into v_next from nuncius.publisher_counts c
            where c.publisher_id = p_publishers[i] and c.kind = 1 and c.target_id = p_topics[i]
            order by c.publisher_count desc limit 1;
            v_seen[i] := v_next;
            if v_next is null or v_next < v_lengths[i] then
                insert into nuncius.publisher_counts (publisher_id, kind, target_id, publisher_count)
                values (p_publishers[i], 1, p_topics[i], p_counts[i] + v_lengths[i] - 1);
            end if;
        end loop;
    end if;

    v_previous := 0;
    foreach i in array v_order loop
        v_send := p_sends[i];
        bases[i] := coalesce(v_stops[v_send], case when v_run_topics[i] = any (v_busy) then -3 end);
        continue when bases[i] < 0;
        if v_ids[i] <> v_previous then
            v_previous := v_ids[i];
            v_next := v_ends[i];
        end if;
        if v_seen[v_send] > 0 then
            skipped[i] := case when p_numbers is null then least(v_seen[v_send], p_sizes[i]) else (
                select count(*) from unnest(p_numbers[v_firsts[i]:v_lasts[i]]) n where n < v_seen[v_send]) end;
            v_firsts[i] := v_firsts[i] + skipped[i];
        end if;
        bases[i] := case when skipped[i] = p_sizes[i] then -1 else v_next end;
        v_next := v_next + p_sizes[i] - skipped[i];
    end loop;

    insert into nuncius.entries
        (partition_id, publisher_id, entry_offset, publisher_count, key, headers, body)
    select r.id, p_publishers[r.send], r.base + e.n - 1,
        p_counts[r.send] + coalesce(e.number, r.skip + e.n - 1), e.key, nuncius.as_headers(e.headers), e.body
    from unnest(v_ids, p_sends, bases, skipped, v_firsts, v_lasts) r(id, send, base, skip, first, last),
        unnest(p_numbers[r.first:r.last], p_keys[r.first:r.last], p_headers[r.first:r.last],
            p_bodies[r.first:r.last]) with ordinality e(number, key, headers, body, n)
    where r.base >= 0;
    if p_notify then
        perform nuncius.announce(p_topics, null);
    end if;
end $$;
