-- Finding the messages to take from queues: the steps of take_many, which is in the next file.
--
-- Requests are arrays with one item each, and are named by their ordinals: p_queues, p_receivers, p_senders,
-- p_contexts, p_modes and p_after are those of take_many, p_most is how many messages each may have.

-- The size of a message in an answer.
create or replace function nuncius.size_of(p_message bytea, p_headers jsonb)
returns bigint language sql immutable as $$
    select octet_length(p_message)::bigint + coalesce(octet_length(p_headers::text), 0)
$$;

-- The messages for these requests, if no two of them can want the same message. Where to look depends on the kind of
-- request; kinds without a request cost nothing. p_upto is where to stop among messages for anyone: ten ids per
-- request, for priorities 1 to 10; null as a whole does not stop.
create or replace function nuncius.find_messages(
    p_requests integer[], p_queues integer[], p_receivers integer[], p_senders integer[], p_contexts integer[],
    p_modes smallint[], p_most bigint[], p_after bigint[], p_upto bigint[]
) returns tid[] language plpgsql as $$
declare
    v_found tid[] := '{}';
begin
    if 1 = any (p_modes) then
        -- One priority after the other, highest first, until there are enough.
        v_found := array(
            select found.ctid from unnest(p_requests) n, lateral (
                select m.ctid from generate_series(10, 1, -1) p, lateral (
                    (select ctid, message_id from nuncius.messages
                    where queue_id = p_queues[n] and receiver_id = 0 and priority = p
                        and message_id > coalesce(p_after[20 * n - 20 + p], 0)
                        and message_id <= coalesce(p_upto[10 * n - 10 + p], 9223372036854775807)
                    order by message_id limit p_most[n])
                    union all
                    (select ctid, message_id from nuncius.messages
                    where queue_id = p_queues[n] and receiver_id = p_receivers[n] and p_receivers[n] <> 0
                        and priority = p and message_id > coalesce(p_after[20 * n - 10 + p], 0)
                    order by message_id limit p_most[n])
                    order by message_id limit p_most[n]) m
                where p_modes[n] = 1 and p_contexts[n] = 0 and p_senders[n] = 0
                limit p_most[n]
            ) found);
    end if;
    if 1 <> any (p_modes) then
        v_found := v_found || array(
            select found.ctid from unnest(p_requests) n, lateral (
                select m.ctid from generate_series(1, 10) p, lateral (
                    (select ctid, message_id from nuncius.messages
                    where queue_id = p_queues[n] and receiver_id = 0 and priority = p
                        and message_id > coalesce(p_after[20 * n - 20 + p], 0)
                        and message_id <= coalesce(p_upto[10 * n - 10 + p], 9223372036854775807)
                    order by message_id limit p_most[n])
                    union all
                    (select ctid, message_id from nuncius.messages
                    where queue_id = p_queues[n] and receiver_id = p_receivers[n] and p_receivers[n] <> 0
                        and priority = p and message_id > coalesce(p_after[20 * n - 10 + p], 0)
                    order by message_id limit p_most[n])) m
                where p_modes[n] <> 1 and p_contexts[n] = 0 and p_senders[n] = 0
                order by m.message_id limit p_most[n]
            ) found);
    end if;
    if 0 <> any (p_contexts) then
        v_found := v_found || array(
            select found.ctid from unnest(p_requests) n, lateral (
                select ctid from nuncius.messages
                where queue_id = p_queues[n] and receiver_id = p_receivers[n]
                    and context = p_contexts[n] and context <> 0
                order by case when p_modes[n] = 1 then priority end desc, message_id limit p_most[n]
            ) found);
    end if;
    if 0 <> any (p_senders) then
        v_found := v_found || array(
            select found.ctid from unnest(p_requests) n, lateral (
                select m.ctid from generate_series(1, 10) p,
                    unnest(array[0, nullif(p_receivers[n], 0)]) r,
                    lateral (select ctid, message_id from nuncius.messages
                        where queue_id = p_queues[n] and receiver_id = r and sender_id = p_senders[n]
                            and sender_id <> 0 and priority = p
                        order by message_id limit p_most[n]) m
                where p_contexts[n] = 0
                order by case when p_modes[n] = 1 then p end desc, m.message_id limit p_most[n]
            ) found);
    end if;
    return v_found;
end $$;

-- The messages for requests that only want those for their receivers: requests for an answer, and in queues without
-- messages for anyone all others. No two of them have the same receiver. `requests` are the requests that are complete
-- with that, even if they get nothing. One statement sees both kinds, so a message for anyone that comes after it is
-- for a later look.
--
-- Most readers have few messages waiting. So a request by age first looks at up to 33, in one search of the index: 32
-- or less are all there are. Only if there are more, and by priority, each priority is searched for the first ones.
create or replace function nuncius.find_own_messages(
    p_requests integer[], p_queues integer[], p_receivers integer[], p_contexts integer[], p_modes smallint[],
    p_limits integer[], p_after bigint[], out places tid[], out requests integer[]
) language plpgsql as $$
begin
    with shared as materialized (
        select queue from (
            select p_queues[n] as queue, min(n) as n from unnest(p_requests) n where p_contexts[n] = 0 group by 1) own
        where exists (select from generate_series(1, 10) p where exists (
            select from nuncius.messages
            where queue_id = own.queue and receiver_id = 0 and priority = p
                and message_id > coalesce(p_after[20 * own.n - 20 + p], 0)))
    ), served as materialized (
        select n from unnest(p_requests) n
        where p_contexts[n] <> 0 or p_queues[n] not in (select queue from shared)
    ), few as materialized (
        select n, ctid, message_id, count(*) over (partition by n) as number,
            row_number() over (partition by n order by message_id) as place
        from served, lateral (
            select ctid, message_id from nuncius.messages
            where queue_id = p_queues[n] and receiver_id = p_receivers[n]
                and priority = any (array[1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
                and message_id > coalesce(least(
                    p_after[20 * n - 9], p_after[20 * n - 8], p_after[20 * n - 7], p_after[20 * n - 6],
                    p_after[20 * n - 5], p_after[20 * n - 4], p_after[20 * n - 3], p_after[20 * n - 2],
                    p_after[20 * n - 1], p_after[20 * n]), 0)
            limit 33) m
        where p_contexts[n] = 0 and p_receivers[n] <> 0 and p_modes[n] <> 1
    )
    select array(
            select ctid from few where number <= 32 and place <= p_limits[n]
            union all
            select own.ctid from (
                select n from served where p_modes[n] = 1 and p_contexts[n] = 0 and p_receivers[n] <> 0
                union all
                select n from few where number > 32 and place = 1
            ) many, lateral (
                select m.ctid from generate_series(1, 10) p, lateral (
                    select ctid, message_id from nuncius.messages
                    where queue_id = p_queues[n] and receiver_id = p_receivers[n] and priority = p
                        and message_id > coalesce(p_after[20 * n - 10 + p], 0)
                    order by message_id limit p_limits[n]) m
                order by case when p_modes[n] = 1 then p end desc, m.message_id limit p_limits[n]
            ) own
            union all
            select answer.ctid from served, lateral (
                select ctid from nuncius.messages
                where queue_id = p_queues[n] and receiver_id = p_receivers[n]
                    and context = p_contexts[n] and context <> 0
                order by case when p_modes[n] = 1 then priority end desc, message_id limit p_limits[n]
            ) answer
            where p_contexts[n] <> 0),
        array(select n from served)
    into places, requests;
end $$;

-- Returns true if the request of this ordinal starts after the same id in every priority.
create or replace function nuncius.is_level(p_after bigint[], p_request integer)
returns boolean language sql immutable as $$
    select (p_after[20 * p_request] = all (p_after[20 * p_request - 9 : 20 * p_request])
        and p_after[20 * p_request - 10] = all (p_after[20 * p_request - 19 : 20 * p_request - 10])) is not false
$$;

-- Messages that a request may get, of any priority: for its receiver and for anyone, in one search of the index each;
-- or answers to it, if it has a context. At most 33, not necessarily the first: 32 or less are all there are. Messages
-- with an id up to p_own or p_shared are gone.
create or replace function nuncius.few_messages(
    p_queue integer, p_receiver integer, p_context integer, p_own bigint, p_shared bigint
) returns table (place tid, priority smallint, message_id bigint, bytes bigint) language sql stable as $$
    (select ctid, priority, message_id, nuncius.size_of(message, headers) from nuncius.messages
    where queue_id = p_queue and receiver_id = p_receiver and p_receiver <> 0 and p_context = 0
        and priority = any (array[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]) and message_id > coalesce(p_own, 0))
    union all
    (select ctid, priority, message_id, nuncius.size_of(message, headers) from nuncius.messages
    where queue_id = p_queue and receiver_id = 0 and p_context = 0
        and priority = any (array[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]) and message_id > coalesce(p_shared, 0))
    union all
    (select ctid, priority, message_id, nuncius.size_of(message, headers) from nuncius.messages
    where queue_id = p_queue and receiver_id = p_receiver and context = p_context and context <> 0)
    limit 33
$$;

-- The first of these messages, in the order of the requests and within each request, up to so many bytes. With
-- p_at_least_one the very first message is included, however large it is.
create or replace function nuncius.first_messages(
    p_found tid[], p_bytes bigint, p_at_least_one boolean,
    p_requests integer[], p_queues integer[], p_receivers integer[], p_contexts integer[], p_modes smallint[]
) returns tid[] language sql as $$
    select array(
        select kept.ctid from (
            select m.ctid, m.bytes, sum(m.bytes) over (
                order by n, case when p_modes[n] = 1 then -m.priority end, m.message_id) as upto
            from (
                select ctid, *, nuncius.size_of(message, headers) as bytes
                from nuncius.messages where ctid = any (p_found)
            ) m
            join unnest(p_requests) n on p_queues[n] = m.queue_id
                and (p_receivers[n] = m.receiver_id
                    or m.receiver_id = 0 and (p_contexts[n] = 0 or p_receivers[n] = 0))
        ) kept
        where kept.upto <= p_bytes or p_at_least_one and kept.upto = kept.bytes)
$$;

-- Joins requests that can be carried out as one. A reader without messages of its own makes the same request as any
-- other. Equal requests to a queue, one after the other, are joined and share the messages in their order: `leads`
-- is the first of them, `most` is how many they may have together. All three have an item for every request.
--
-- `upto` has ten ids for every request: the last message for anyone in its queue, of each priority. Later messages are
-- for a later look: before them, messages may have come for a reader that had none of its own.
create or replace function nuncius.join_requests(
    p_requests integer[], p_queues integer[], p_receivers integer[], p_senders integer[], p_contexts integer[],
    p_modes smallint[], p_limits integer[], p_after bigint[],
    out receivers integer[], out leads integer[], out most bigint[], out upto bigint[]
) language plpgsql as $$
begin
    with ends as materialized (
        select queue, array(
            select coalesce((
                select message_id from nuncius.messages
                where queue_id = asked.queue and receiver_id = 0 and priority = p
                    and message_id > coalesce(p_after[20 * asked.n - 20 + p], 0)
                order by message_id desc limit 1), 0)
            from generate_series(1, 10) p order by p) as last
        from (select p_queues[n] as queue, min(n) as n from unnest(p_requests) n group by 1) asked
    )
    select array(
        select case when p_receivers[n] = 0 or p_senders[n] <> 0 or p_contexts[n] <> 0 or n <> all (p_requests)
            or exists (
                select from generate_series(1, 10) p where exists (
                    select from nuncius.messages
                    where queue_id = p_queues[n] and receiver_id = p_receivers[n] and priority = p
                        and message_id > coalesce(p_after[20 * n - 10 + p], 0)))
            then p_receivers[n] else 0 end
        from generate_series(1, cardinality(p_queues)) n order by n),
        array(
        select coalesce(last[p], 0)
        from generate_series(1, cardinality(p_queues)) n cross join generate_series(1, 10) p
            left join ends on ends.queue = p_queues[n]
        order by n, p)
    into receivers, upto;
    select array_agg(lead order by n), array_agg(together order by n) into leads, most
    from (
        select n, lead, sum(p_limits[n]) over (partition by lead) as together
        from (
            select n, case when n = any (p_requests)
                then min(n) over (partition by p_queues[n], is_open, turn) else n end as lead
            from (
                select n, is_open, count(*) filter (where is_new) over (
                    partition by p_queues[n], is_open order by n) as turn
                from (
                    select n, is_open, row(receivers[n], p_senders[n], p_contexts[n], p_modes[n])
                        is distinct from lag(row(receivers[n], p_senders[n], p_contexts[n], p_modes[n]))
                        over (partition by p_queues[n], is_open order by n) as is_new
                    from (
                        select n, n = any (p_requests) and (p_contexts[n] = 0 or receivers[n] = 0) as is_open
                        from generate_series(1, cardinality(p_queues)) n) asked
                ) compared
            ) turns
        ) joined
    ) summed;
end $$;
