-- Taking from queues.

-- Takes messages out of queues, for several requests in one transaction. One item per request: the queue,
-- the receiver (which sees its own messages and those for anyone), the sender (0: any), the context (0: any,
-- else only answers to that request), the mode (1: highest priority first, 2: oldest first), the limit.
--
-- p_after is where to start: twenty ids per request, for priorities 1 to 10 of messages for anyone, then for
-- the receiver; everything up to them has been taken. Null starts at the beginning. A caller that
-- remembers the last ids it took (without a sender or context: such takes leave nothing older behind)
-- does not have to pass rows that are deleted but not vacuumed yet.
--
-- p_bytes bounds the answer: about so many bytes of messages and headers, but always at least one message. Null:
-- no bound. When it is reached, a row says so, and requests that got nothing have to be repeated.
--
-- `request` is the ordinal of the request. Other numbers mark rows without a message:
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
    v_looked integer[];     -- requests in their order, an item for each message that one may have, in its order;
    v_seen tid[];           --   and its row, or null
    v_sizes bigint[];
    v_many boolean[];       --   and true if there was no look for it
    v_finders integer[] := '{}';
    v_wanted integer;
    n integer := 0;         -- whose turn it is
    v_receivers integer[] := p_receivers;
    v_leads integer[];              -- the request that each one is joined to; null: itself
    v_upto bigint[];                -- the last ids that they may have, see join_requests
    v_most bigint[] := p_limits;    -- how many messages all joined requests may have
    v_requests integer[];
    v_found tid[] := '{}';
    v_bytes bigint;
    v_left bigint := p_bytes;
begin
    foreach queue_id in array v_busy loop
        request := 0;
        return next;
    end loop;
    -- From here on no other transaction takes from these queues, so a found row stays in place. Mostly there are few
    -- messages for each request, taken up to the same id in every priority. Then one look finds the messages of all at
    -- the same moment, and the requests get theirs one after the other, up to the first for which that is not so.
    n := v_rest[1];
    if not v_alone and p_senders[n] = 0 and nuncius.is_level(p_after, n)
        and not exists (
            select from nuncius.messages
            where queue_id = p_queues[n] and receiver_id = 0
                and priority = any (array[1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
                and message_id > coalesce(p_after[20 * n - 10], 0)
            offset 32) then
        n := 0;
        select array_agg(n order by n, rank desc, message_id), array_agg(place order by n, rank desc, message_id),
            array_agg(bytes order by n, rank desc, message_id), array_agg(many order by n, rank desc, message_id)
        into v_looked, v_seen, v_sizes, v_many
        from (
            select asked.n, many, few.*, case when p_modes[asked.n] = 1 then few.priority end as rank
            from (
                select n, p_senders[n] <> 0 or not nuncius.is_level(p_after, n) as many
                from unnest(v_rest) n
            ) asked left join lateral (
                select * from nuncius.few_messages(p_queues[asked.n], p_receivers[asked.n], p_contexts[asked.n],
                    p_after[20 * asked.n], p_after[20 * asked.n - 10])
                where not many
            ) few on true
        ) looked;
        for i in 1 .. coalesce(cardinality(v_looked), 0) loop
            if v_looked[i] <> n then
                n := v_looked[i];
                exit when v_many[i] or v_looked[i + 32] = n;
                v_rest := v_rest[2:];
                v_wanted := p_limits[n];
            end if;
            continue when v_wanted = 0 or v_seen[i] is null or v_seen[i] = any (v_found);
            v_left := v_left - v_sizes[i];
            exit when v_left < 0 and v_found <> '{}';
            v_found := v_found || v_seen[i];
            v_finders := v_finders || n;
            v_wanted := v_wanted - 1;
            exit when v_left < 0;
        end loop;
        if v_found <> '{}' then
            return query
            with taken as (
                delete from nuncius.messages where ctid = any (v_found) returning ctid as place, *
            )
            select f.n, t.message_id, t.queue_id, t.sender_id, t.receiver_id, t.context, t.priority,
                t.time_of_arrival, t.message, t.headers::text
            from unnest(v_found, v_finders) with ordinality f(place, n, number) join taken t using (place)
            order by f.number;
        end if;
    end if;
    -- Of the others, requests that cannot want the same message go together: all, if each is for another queue; else
    -- first those that only want messages for their receivers, and the rest in rounds, one after the other.
    while v_rest <> '{}' and (v_left < 0) is not true loop
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
            -- A request for an answer wants only messages for its receiver; all others also want those for anyone.
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
