-- Putting into queues.

-- Headers as they are stored. All doors deliver them as names and texts, so they must contain nothing else.
create or replace function nuncius.as_headers(p_headers text)
returns jsonb language plpgsql immutable strict as $$
declare
    v_headers jsonb := p_headers;
begin
    if jsonb_typeof(v_headers) <> 'object'
        or jsonb_path_exists(v_headers, 'strict $.* ? (@.type() <> "string")') then
        raise invalid_parameter_value
            using message = format('headers are a JSON object of strings, not %s', left(p_headers, 100));
    end if;
    return v_headers;
end $$;

-- Puts runs of messages in one transaction. A run is for one queue and one publisher, with counts that go
-- up by one. One item per run: p_queues, p_publishers, p_counts (of its first message), p_sizes. One item per
-- message, run after run: all others; p_publishers, p_counts and optional fields of messages may be null
-- as a whole. With p_atomic the call is one operation: if one run is refused, nothing is stored.
--
-- Returns per run: `codes` and `skipped`, how many of its messages the publisher had sent before; and the
-- ids of all messages that were stored, in the order given. Codes:
--   0 stored   -1 all sent before   -2 no such queue   -3 busy, see take_locks
-- Promises: ids are in commit order within a queue; a publisher's count is stored once per queue. A snapshot does not
-- show counts that were stored after it was taken, so counts are refused where snapshots are kept (from
-- REPEATABLE READ on); and so is a queue that was deleted since.
create or replace function nuncius.put_many(
    p_queues integer[], p_publishers integer[], p_counts bigint[], p_sizes integer[],
    p_senders integer[], p_receivers integer[], p_contexts integer[], p_priorities smallint[],
    p_headers text[], p_messages bytea[],
    p_atomic boolean default false, p_wait boolean default true, p_notify boolean default true,
    out codes integer[], out skipped integer[], out ids bigint[]
) language plpgsql as $$
declare
    v_busy integer[] := nuncius.take_locks(78002, p_queues, p_queues, p_wait);
    -- From here on no other transaction puts into these queues, nor deletes them.
    v_found integer[] := array(select queue_id from nuncius.queues where queue_id = any (p_queues));
    v_firsts integer[];     -- ordinal of the first new message of each run
    v_lasts integer[];      -- ordinal of the last
    v_end integer := 0;
    i integer;
begin
    if nuncius.keeps_snapshot() then
        if array_remove(p_publishers, null) <> '{}' then
            raise feature_not_supported using
                message = 'a publisher''s counts are recognised in READ COMMITTED transactions only',
                hint = 'put without a publisher, or from a transaction of that level';
        end if;
        perform from nuncius.queues where queue_id = any (v_found) for key share;
    end if;
    for i in 1 .. cardinality(p_queues) loop
        codes[i] := case when p_queues[i] = any (v_busy) then -3
            when p_queues[i] = any (v_found) then 0 else -2 end;
        skipped[i] := 0;
        v_firsts[i] := v_end + 1;
        v_end := v_end + p_sizes[i];
        v_lasts[i] := v_end;
    end loop;
    if v_end is distinct from cardinality(p_messages) or 0 > any (p_sizes)
        or cardinality(p_publishers) <> cardinality(p_queues) or cardinality(p_counts) <> cardinality(p_queues)
        or cardinality(p_senders) <> v_end or cardinality(p_receivers) <> v_end or cardinality(p_contexts) <> v_end
        or cardinality(p_priorities) <> v_end or cardinality(p_headers) <> v_end then
        raise invalid_parameter_value using message = 'these arrays do not go together',
            hint = 'p_queues, p_publishers, p_counts and p_sizes have one item a run, the others one item a message, '
                'and p_sizes adds up to the number of messages';
    end if;
    if p_atomic and 0 > any (codes) then
        return;
    end if;
    if p_publishers is not null then
        -- A run is compared with the stored counts, and with earlier runs of this call.
        skipped := array(
            select greatest(0, least(r.size, coalesce(greatest(
                (select c.publisher_count from nuncius.publisher_counts c
                where c.publisher_id = r.publisher and c.kind = 2 and c.target_id = r.queue
                order by c.publisher_count desc limit 1), r.before, 0) - r.count + 1, 0)))
            from (
                select n, queue, publisher, count, size, max(count + size - 1) filter (where code = 0)
                    over (partition by queue, publisher order by n
                        rows between unbounded preceding and 1 preceding) as before
                from unnest(p_queues, p_publishers, p_counts, p_sizes, codes)
                    with ordinality u(queue, publisher, count, size, code, n)) r
            order by r.n);
        for i in 1 .. cardinality(p_queues) loop
            if p_publishers[i] is null or codes[i] < 0 then
                skipped[i] := 0;
            elsif skipped[i] = p_sizes[i] then
                codes[i] := -1;
            else
                v_firsts[i] := v_firsts[i] + skipped[i];
            end if;
        end loop;
        if p_atomic and 0 > any (codes) then
            return;
        end if;
        insert into nuncius.publisher_counts (publisher_id, kind, target_id, publisher_count)
        select publisher, 2, queue, max(count + size - 1)
        from unnest(p_queues, p_publishers, p_counts, p_sizes, codes) r(queue, publisher, count, size, code)
        where code = 0 and publisher is not null
        group by queue, publisher;
    end if;

    with stored as (
        insert into nuncius.messages
            (queue_id, sender_id, receiver_id, context, priority, headers, message)
        select r.queue, coalesce(m.sender, 0), coalesce(m.receiver, 0), coalesce(m.context, 0),
            m.priority, nuncius.as_headers(m.headers), m.message
        from unnest(p_queues, codes, v_firsts, v_lasts) r(queue, code, first, last),
            unnest(p_senders[r.first:r.last], p_receivers[r.first:r.last], p_contexts[r.first:r.last],
                p_priorities[r.first:r.last], p_headers[r.first:r.last], p_messages[r.first:r.last])
                m(sender, receiver, context, priority, headers, message)
        where r.code = 0
        returning message_id
    )
    select array_agg(message_id order by message_id) into ids from stored;
    if p_notify then
        perform nuncius.announce(null, v_found);
    end if;
end $$;
