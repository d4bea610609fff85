-- Taking from queues. `take_many` at the end is the procedure; the others are its steps.
--
-- Requests are arrays with one item each, and are named by their ordinals: p_queues, p_receivers, p_senders,
-- p_contexts, p_modes and p_after are those of take_many, p_most is how many messages each may have.

-- What a message takes up in an answer.
create or replace function nuncius.size_of(p_message bytea, p_headers jsonb)
returns bigint language sql immutable as $$
    select octet_length(p_message)::bigint + coalesce(octet_length(p_headers::text), 0)
$$;

-- What these requests would get, if no two of them can want the same message. Where to look depends on the kind of
-- request, and kinds that nobody asks for cost nothing. p_upto is where to stop among messages for anyone: ten ids a
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

-- What these requests would get that only want what is for their receivers: those who ask for an answer, and in queues
-- with nothing for anyone all others. No two of them have the same receiver. `requests` are those who want no more,
-- whether they get something or not. One statement sees both kinds, so what comes for anyone after it is for a
-- later look.
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
    )
    select array(
            select own.ctid from served, lateral (
                select m.ctid from generate_series(1, 10) p, lateral (
                    select ctid, message_id from nuncius.messages
                    where queue_id = p_queues[n] and receiver_id = p_receivers[n] and priority = p
                        and message_id > coalesce(p_after[20 * n - 10 + p], 0)
                    order by message_id limit p_limits[n]) m
                where p_contexts[n] = 0 and p_receivers[n] <> 0
                order by case when p_modes[n] = 1 then p end desc, m.message_id limit p_limits[n]
            ) own
            union all
            select answer.ctid from served, lateral (
                select ctid from nuncius.messages
                where queue_id = p_queues[n] and receiver_id = p_receivers[n]
                    and context = p_contexts[n] and context <> 0
                order by case when p_modes[n] = 1 then priority end desc, message_id limit p_limits[n]
            ) answer),
        array(select n from served)
    into places, requests;
end $$;

-- The first of these messages, in the order of the requests and of each request's own, up to so many bytes; and the
-- very first, if p_at_least_one, however large it is.
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

-- Which of these requests are carried out as one. A reader for whom nothing is addressed asks the same as anybody.
-- Those who ask the same of a queue, one after the other, go together and share what comes back in their order: `leads`
-- is the first of them, `most` is how many they may have together. All three have an item for every request.
--
-- `upto` has ten ids for every request: the last message for anyone in its queue, of each priority. What comes later is
-- for a later look, because before it something may have come for a reader of whom we said that nothing is.
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

-- Takes messages out of queues, for several requests in one transaction. One item a request: the queue,
-- the receiver (who sees its own messages and those for anyone), the sender (0: any), the context (0: any,
-- else only answers to that request), the mode (1: highest priority first, 2: oldest first), the limit.
--
-- p_after is where to start: twenty ids a request, for priorities 1 to 10 of messages for anyone, then for
-- the receiver; everything up to them has been taken. Null starts at the beginning. A caller that
-- remembers the last ids it took (without a sender or context: such takes leave nothing older behind)
-- does not have to walk over what is already gone but not vacuumed yet.
--
-- p_bytes bounds the answer: about so many bytes of messages and headers, but always at least one message. Null:
-- no bound. When it is reached, a row says so, and who got nothing has to ask again.
--
-- `request` is the ordinal of the request. Other numbers stand in rows that say something else:
--   0 busy, for the queue in queue_id   -1 no such queue   -2 there is more than p_bytes
-- Promises: strict order, no message twice, no false "nothing there", however many callers.
create or replace function nuncius.take_many(
    p_queues integer[], p_receivers integer[], p_senders integer[], p_contexts integer[],
    p_modes smallint[], p_limits integer[], p_after bigint[] default null, p_wait boolean default true,
    p_bytes bigint default null
) returns table (
    request integer, message_id bigint, queue_id integer, sender_id integer, receiver_id integer,
    context integer, priority smallint, time_of_arrival timestamptz, message bytea, headers text
) language plpgsql as $$
#variable_conflict use_column
declare
    v_busy integer[] := nuncius.take_locks(78003, p_queues, p_queues, p_wait);
    v_alone boolean := (select count(distinct q) = count(*) from unnest(p_queues) q);  -- one request a queue
    v_rest integer[] := array(
        select n from unnest(p_queues) with ordinality r(queue, n) where queue <> all (v_busy) order by n);
    v_receivers integer[] := p_receivers;
    v_leads integer[];              -- the request together with which each one is carried out; null: itself
    v_upto bigint[];                -- the last ids that they may have, see join_requests
    v_most bigint[] := p_limits;    -- how many all that are carried out with each one may have
    v_requests integer[];
    v_found tid[];
    v_bytes bigint;
    v_left bigint := p_bytes;
begin
    foreach queue_id in array v_busy loop
        request := 0;
        return next;
    end loop;
    -- From here on nobody else takes from these queues, so a row that was found stays where it is. Requests that
    -- cannot want the same message go together: all, if each is for another queue; else first those who only
    -- want what is for themselves, and the others in rounds, one after the other.
    while v_rest <> '{}' loop
        if v_alone then
            v_requests := v_rest;
        elsif v_requests is null then
            v_requests := array(
                select n from (
                    select n, min(n) over (partition by p_queues[n], p_receivers[n]) as first_for_receiver
                    from unnest(v_rest) n) ranked
                where n = first_for_receiver and p_senders[n] = 0 and (p_contexts[n] = 0 or p_receivers[n] <> 0));
            select places, requests into v_found, v_requests from nuncius.find_own_messages(
                v_requests, p_queues, p_receivers, p_contexts, p_modes, p_limits, p_after);
        else
            if v_leads is null then
                select receivers, leads, most, upto into v_receivers, v_leads, v_most, v_upto
                from nuncius.join_requests(
                    v_rest, p_queues, p_receivers, p_senders, p_contexts, p_modes, p_limits, p_after);
                v_rest := array(select n from unnest(v_rest) n where v_leads[n] = n order by n);
            end if;
            -- Who asks for an answer wants only what is for himself; all others also want what is for anyone.
            v_requests := array(
                select n from (
                    select n, is_open, min(n) over (partition by queue, receiver) as first_for_receiver,
                        min(n) filter (where is_open) over (partition by queue) as first_open
                    from (
                        select n, p_queues[n] as queue, v_receivers[n] as receiver,
                            p_contexts[n] = 0 or v_receivers[n] = 0 as is_open
                        from unnest(v_rest) n) rest
                ) ranked
                where n = first_for_receiver and (not is_open or n = first_open));
        end if;
        if v_alone or v_leads is not null then
            v_found := nuncius.find_messages(
                v_requests, p_queues, v_receivers, p_senders, p_contexts, p_modes, v_most, p_after, v_upto);
        end if;
        if v_left is not null and v_found <> '{}' then
            v_bytes := (
                select sum(nuncius.size_of(message, headers)) from nuncius.messages where ctid = any (v_found));
            if v_bytes > v_left then
                v_found := nuncius.first_messages(v_found, v_left, v_left = p_bytes,
                    v_requests, p_queues, v_receivers, p_contexts, p_modes);
            end if;
            v_left := v_left - v_bytes;
        end if;
        if v_found <> '{}' and v_leads is null then
            return query
            with taken as (
                delete from nuncius.messages where ctid = any (v_found) returning *
            )
            select n, t.message_id, t.queue_id, t.sender_id, t.receiver_id, t.context, t.priority,
                t.time_of_arrival, t.message, t.headers::text
            from taken t join unnest(v_requests) n on p_queues[n] = t.queue_id
                and (p_receivers[n] = t.receiver_id
                    or t.receiver_id = 0 and (p_contexts[n] = 0 or p_receivers[n] = 0))
            order by n, case when p_modes[n] = 1 then t.priority end desc, t.message_id;
        elsif v_found <> '{}' then
            return query
            with taken as (
                delete from nuncius.messages where ctid = any (v_found) returning *
            ), ranked as (
                select taken.*, n, row_number() over (partition by n
                    order by case when p_modes[n] = 1 then taken.priority end desc, taken.message_id) as place
                from taken join unnest(v_requests) n on p_queues[n] = taken.queue_id
                    and (v_receivers[n] = taken.receiver_id
                        or taken.receiver_id = 0 and (p_contexts[n] = 0 or v_receivers[n] = 0))
            )
            select s.m::integer, t.message_id, t.queue_id, t.sender_id, t.receiver_id, t.context, t.priority,
                t.time_of_arrival, t.message, t.headers::text
            from ranked t join (
                select lead, m, p_limits[m] as most, sum(p_limits[m]) over (partition by lead order by m) as upto
                from unnest(v_leads) with ordinality l(lead, m)
            ) s on s.lead = t.n and t.place > s.upto - s.most and t.place <= s.upto
            order by s.m, t.place;
        end if;
        exit when v_alone or v_left < 0;
        v_rest := array(select n from unnest(v_rest) n where n <> all (v_requests) order by n);
    end loop;
    if v_left < 0 then
        request := -2;
        queue_id := null;
        return next;
    end if;
    request := -1;
    for queue_id in
        select q from unnest(p_queues) q where not exists (select from nuncius.queues where queue_id = q)
    loop
        return next;
    end loop;
end $$;
