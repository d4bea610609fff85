-- Putting into queues and taking from them.

-- Puts runs of messages in one transaction. A run is for one queue and one publisher, with counts that go
-- up by one. One item a run: p_queues, p_publishers, p_counts (of its first message), p_sizes. One item a
-- message, run after run: all others; p_publishers, p_counts and what a message need not have may be null
-- as a whole. With p_atomic the call is one operation: if one run is refused, nothing is stored.
--
-- Answers per run: `codes` and `skipped`, how many of its messages the publisher had sent before; and the
-- ids of all messages that were stored, in the order given. Codes:
--   0 stored   -1 all sent before   -2 no such queue   -3 busy, see take_locks
-- Promises: ids are in commit order within a queue; a publisher's count is stored once per queue.
create or replace function nuncius.put_many(
    p_queues integer[], p_publishers integer[], p_counts bigint[], p_sizes integer[],
    p_senders integer[], p_receivers integer[], p_contexts integer[], p_priorities smallint[],
    p_headers text[], p_messages bytea[],
    p_atomic boolean default false, p_wait boolean default true, p_notify boolean default true,
    out codes integer[], out skipped integer[], out ids bigint[]
) language plpgsql as $$
declare
    v_busy integer[] := nuncius.take_locks(78002, p_queues, p_queues, p_wait);
    -- From here on nobody else puts into these queues, nor deletes them.
    v_found integer[] := array(select queue_id from nuncius.queues where queue_id = any (p_queues));
    v_firsts integer[];     -- ordinal of the first new message of each run
    v_lasts integer[];      -- ordinal of the last
    v_end integer := 0;
    i integer;
begin
    for i in 1 .. cardinality(p_queues) loop
        codes[i] := case when p_queues[i] = any (v_busy) then -3
            when p_queues[i] = any (v_found) then 0 else -2 end;
        skipped[i] := 0;
        v_firsts[i] := v_end + 1;
        v_end := v_end + p_sizes[i];
        v_lasts[i] := v_end;
    end loop;
    if p_atomic and 0 > any (codes) then
        return;
    end if;
    if p_publishers is not null then
        -- A run counts against what is stored, and against runs before it in this very call.
        skipped := array(
            select greatest(0, least(r.size, greatest(
                (select c.publisher_count from nuncius.publisher_counts c
                where c.publisher_id = r.publisher and c.kind = 2 and c.target_id = r.queue
                order by c.publisher_count desc limit 1), r.before, 0) - r.count + 1))
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
            m.priority, m.headers::jsonb, m.message
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

-- Takes messages out of queues, for several requests in one transaction. One item a request: the queue,
-- the receiver (who sees its own messages and those for anyone), the sender (0: any), the context (0: any,
-- else only answers to that request), the mode (1: highest priority first, 2: oldest first), the limit.
--
-- p_after is where to start: twenty ids a request, for priorities 1 to 10 of messages for anyone, then for
-- the receiver; everything up to them has been taken. Null starts at the beginning. A caller that
-- remembers the last ids it took (without a sender or context: such takes leave nothing older behind)
-- does not have to walk over what is already gone but not vacuumed yet.
--
-- `request` is the ordinal of the request; 0 stands in a row that says "busy" for the queue in queue_id.
-- Promises: strict order, no message twice, no false "nothing there", however many callers.
create or replace function nuncius.take_many(
    p_queues integer[], p_receivers integer[], p_senders integer[], p_contexts integer[],
    p_modes smallint[], p_limits integer[], p_after bigint[] default null, p_wait boolean default true
) returns table (
    request integer, message_id bigint, queue_id integer, sender_id integer, receiver_id integer,
    context integer, priority smallint, time_of_arrival timestamptz, message bytea, headers text
) language plpgsql as $$
#variable_conflict use_column
declare
    v_busy integer[] := nuncius.take_locks(78003, p_queues, p_queues, p_wait);
    v_receivers integer[] := p_receivers;
    v_leads integer[];      -- the request together with which each one is carried out; often itself
    v_requests integer[];
    v_rest integer[];
begin
    foreach queue_id in array v_busy loop
        request := 0;
        return next;
    end loop;
    -- From here on nobody else takes from these queues, so a row that was found stays where it is.
    -- A reader for whom nothing is addressed asks the same as anybody. Those who ask the same of a queue, one
    -- after the other, are carried out as one request and share what comes back in their order.
    v_leads := array(select generate_series(1, cardinality(p_queues)));
    if (select count(distinct q) < count(*) from unnest(p_queues) q) then
        v_receivers := array(
            select case when r.receiver = 0 or r.sender <> 0 or r.context <> 0 or exists (
                select from generate_series(1, 10) p where exists (
                    select from nuncius.messages
                    where queue_id = r.queue and receiver_id = r.receiver and priority = p
                        and message_id > coalesce(p_after[20 * (r.n - 1) + 10 + p], 0)))
                then r.receiver else 0 end
            from unnest(p_queues, p_receivers, p_senders, p_contexts)
                with ordinality r(queue, receiver, sender, context, n)
            order by r.n);
        v_leads := array(
            select min(n) over (partition by queue, turn)
            from (
                select n, queue, count(*) filter (where is_new) over (partition by queue order by n) as turn
                from (
                    select n, queue, row(receiver, sender, context, mode) is distinct from
                        lag(row(receiver, sender, context, mode)) over (partition by queue order by n)
                        as is_new
                    from unnest(p_queues, v_receivers, p_senders, p_contexts, p_modes)
                        with ordinality r(queue, receiver, sender, context, mode, n)) asked
            ) turns
            order by n);
    end if;
    -- Requests for different queues do not touch each other and go together; those for the same
    -- queue go in rounds, one after the other.
    v_rest := array(select n from unnest(p_queues, v_leads) with ordinality r(queue, lead, n)
        where queue <> all (v_busy) and lead = n order by n);
    while v_rest <> '{}' loop
        v_requests := array(
            select distinct on (p_queues[n]) n from unnest(v_rest) n order by p_queues[n], n);
        return query
        with asked as (
            select n, p_queues[n] as queue, v_receivers[n] as receiver, p_senders[n] as sender,
                p_contexts[n] as context, p_modes[n] as mode, 20 * (n - 1) as start,
                (select sum(p_limits[m]) from unnest(v_leads) with ordinality l(lead, m) where lead = n)
                    as most
            from unnest(v_requests) n
        ), sharing as (
            select lead, m, p_limits[m] as most, sum(p_limits[m]) over (partition by lead order by m) as upto
            from unnest(v_leads) with ordinality l(lead, m)
        ), taken as (
            delete from nuncius.messages where ctid = any (array(
                select found.ctid from asked a, lateral (
                    select c.ctid from (
                    -- an answer
                    (select ctid, message_id, priority::integer as rank from nuncius.messages
                    where queue_id = a.queue and receiver_id = a.receiver
                        and context = a.context and context <> 0
                    order by case when a.mode = 1 then priority end desc, message_id limit a.most)
                    union all
                    -- from a certain sender
                    (select m.ctid, m.message_id, p from generate_series(1, 10) p,
                        unnest(array[0, nullif(a.receiver, 0)]) r,
                        lateral (select ctid, message_id from nuncius.messages
                            where queue_id = a.queue and receiver_id = r and sender_id = a.sender
                                and sender_id <> 0 and priority = p
                            order by message_id limit a.most) m
                    where a.sender <> 0 and a.context = 0)
                    union all
                    -- from anybody
                    (select m.ctid, m.message_id, p from generate_series(1, 10) p, lateral (
                        (select ctid, message_id from nuncius.messages
                        where queue_id = a.queue and receiver_id = 0 and priority = p
                            and message_id > coalesce(p_after[a.start + p], 0)
                        order by message_id limit a.most)
                        union all
                        (select ctid, message_id from nuncius.messages
                        where queue_id = a.queue and receiver_id = a.receiver and a.receiver <> 0
                            and priority = p and message_id > coalesce(p_after[a.start + 10 + p], 0)
                        order by message_id limit a.most)) m
                    where a.sender = 0 and a.context = 0)
                    ) c order by case when a.mode = 1 then c.rank end desc, c.message_id limit a.most
                ) found))
            returning *
        )
        select s.m::integer, t.message_id, t.queue_id, t.sender_id, t.receiver_id, t.context, t.priority,
            t.time_of_arrival, t.message, t.headers::text
        from (
            select taken.*, a.n, row_number() over (partition by a.n
                order by case when a.mode = 1 then taken.priority end desc, taken.message_id) as place
            from taken join asked a on a.queue = taken.queue_id
        ) t
        join sharing s on s.lead = t.n and t.place > s.upto - s.most and t.place <= s.upto
        order by s.m, t.place;
        v_rest := array(select n from unnest(v_rest) n where n <> all (v_requests) order by n);
    end loop;
end $$;
