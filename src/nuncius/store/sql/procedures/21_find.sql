-- Finding the messages to take from queues: the steps of take_many, which is in the next file.
--
-- A request (nuncius.take_request, see tables/20_messages.sql) is one of a call. Each step gets requests and returns
-- messages: their places in the table, and for each place the request that found it.

-- The size of a message in an answer.
create or replace function nuncius.size_of(p_message bytea, p_headers jsonb)
returns bigint language sql immutable as $$
    select octet_length(p_message)::bigint + coalesce(octet_length(p_headers::text), 0)
$$;

-- The oldest messages of one priority for one receiver, with ids after p_after, up to p_upto. Null is no bound.
create or replace function nuncius.oldest_messages(
    p_queue integer, p_receiver integer, p_priority integer, p_after bigint, p_upto bigint, p_most bigint
) returns table (place tid, message_id bigint) language sql stable as $$
    select ctid, message_id from nuncius.messages
    where queue_id = p_queue and receiver_id = p_receiver and priority = p_priority
        and message_id > coalesce(p_after, 0) and message_id <= coalesce(p_upto, 9223372036854775807)
    order by message_id limit p_most
$$;

-- Finds the messages for these requests, if no two of them can want the same message; those of a request are in its
-- order. Where to look depends on the kind of request; kinds without a request cost nothing.
create or replace function nuncius.find_messages(p_asked nuncius.take_request[])
returns table (place tid, finder integer) language plpgsql as $$
declare
    v_kinds record;
begin
    select bool_or(context = 0 and sender = 0 and mode = 1) as by_priority,
        bool_or(context = 0 and sender = 0 and mode <> 1) as by_time,
        bool_or(context <> 0) as answers, bool_or(context = 0 and sender <> 0) as of_a_sender
    into v_kinds from unnest(p_asked);
    if v_kinds.by_priority then
        -- One priority after the other, highest first, until there are enough.
        return query
        select found.place, a.n from unnest(p_asked) a, lateral (
            select m.place from generate_series(10, 1, -1) p, lateral (
                select * from nuncius.oldest_messages(a.queue, 0, p, a.shared[p], a.upto[p], a.most)
                union all
                select * from nuncius.oldest_messages(a.queue, nullif(a.receiver, 0), p, a.own[p], null, a.most)
                order by message_id limit a.most) m
            limit a.most
        ) found
        where a.mode = 1 and a.context = 0 and a.sender = 0;
    end if;
    if v_kinds.by_time then
        return query
        select found.place, a.n from unnest(p_asked) a, lateral (
            select m.place from generate_series(1, 10) p, lateral (
                select * from nuncius.oldest_messages(a.queue, 0, p, a.shared[p], a.upto[p], a.most)
                union all
                select * from nuncius.oldest_messages(a.queue, nullif(a.receiver, 0), p, a.own[p], null, a.most)) m
            order by m.message_id limit a.most
        ) found
        where a.mode <> 1 and a.context = 0 and a.sender = 0;
    end if;
    if v_kinds.answers then
        return query
        select found.ctid, a.n from unnest(p_asked) a, lateral (
            select ctid from nuncius.messages
            where queue_id = a.queue and receiver_id = a.receiver and context = a.context and context <> 0
            order by case when a.mode = 1 then priority end desc, message_id limit a.most
        ) found;
    end if;
    if v_kinds.of_a_sender then
        return query
        select found.ctid, a.n from unnest(p_asked) a, lateral (
            select m.ctid from generate_series(1, 10) p, unnest(array[0, nullif(a.receiver, 0)]) r, lateral (
                select ctid, message_id from nuncius.messages
                where queue_id = a.queue and receiver_id = r and sender_id = a.sender and sender_id <> 0
                    and priority = p
                order by message_id limit a.most) m
            order by case when a.mode = 1 then p end desc, m.message_id limit a.most
        ) found
        where a.context = 0;
    end if;
end $$;

-- Messages that a request may get, of any priority: for its receiver and for anyone, in one search of the index each;
-- or answers to it, if it has a context. At most 33, not necessarily the first: 32 or less are all there are. Messages
-- with an id up to p_own or p_shared are gone.
create or replace function nuncius.few_messages(
    p_queue integer, p_receiver integer, p_context integer, p_own bigint, p_shared bigint
) returns table (place tid, priority smallint, message_id bigint) language sql stable as $$
    (select ctid, priority, message_id from nuncius.messages
    where queue_id = p_queue and receiver_id = p_receiver and p_receiver <> 0 and p_context = 0
        and priority = any (array[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]) and message_id > coalesce(p_own, 0))
    union all
    (select ctid, priority, message_id from nuncius.messages
    where queue_id = p_queue and receiver_id = 0 and p_context = 0
        and priority = any (array[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]) and message_id > coalesce(p_shared, 0))
    union all
    (select ctid, priority, message_id from nuncius.messages
    where queue_id = p_queue and receiver_id = p_receiver and context = p_context and context <> 0)
    limit 33
$$;

-- Returns true if a request names no sender and starts after the same id in every priority.
create or replace function nuncius.is_level(p_asked nuncius.take_request)
returns boolean language sql immutable as $$
    select p_asked.sender = 0 and (p_asked.shared[1] = all (p_asked.shared)
        and p_asked.own[1] = all (p_asked.own)) is not false
$$;

-- Finds the messages for the first requests, up to the first one that may get more than 32. Mostly that is none:
-- one look finds the messages of all at the same moment, and the requests get theirs one after the other.
create or replace function nuncius.find_few_messages(
    p_asked nuncius.take_request[], out places tid[], out finders integer[], out served integer[]
) language plpgsql as $$
declare
    v_wanted bigint;    -- how many messages the last served request may still have
    v record;
begin
    places := '{}';
    finders := '{}';
    served := '{}';
    if not nuncius.is_level(p_asked[1]) or exists (
        select from nuncius.messages
        where queue_id = p_asked[1].queue and receiver_id = 0
            and priority = any (array[1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
            and message_id > coalesce(p_asked[1].shared[10], 0)
        offset 32) then
        return;
    end if;
    for v in
        select a.n, a.most, few.place, a.is_level and count(few.place) over (partition by a.n) <= 32 as is_few
        from (select *, nuncius.is_level(r) as is_level from unnest(p_asked) r) a
        left join lateral (
            select * from nuncius.few_messages(a.queue, a.receiver, a.context, a.own[10], a.shared[10])
            where a.is_level
        ) few on true
        order by a.n, case when a.mode = 1 then few.priority end desc, few.message_id
    loop
        exit when not v.is_few;
        if v.n is distinct from served[cardinality(served)] then
            served := served || v.n;
            v_wanted := v.most;
        end if;
        if v_wanted > 0 and v.place is not null and v.place <> all (places) then
            places := places || v.place;
            finders := finders || v.n;
            v_wanted := v_wanted - 1;
        end if;
    end loop;
end $$;

-- Finds the messages for requests that only want those for their receivers: requests for an answer, and in queues
-- without messages for anyone all others. Of several with one receiver it takes the first. `served` are the requests
-- that are complete with that, even if they get nothing. One statement sees both kinds, so a message for anyone that
-- comes after it is for a later look.
--
-- Most readers have few messages waiting. So a request by age first looks at up to 33, in one search of the index: 32
-- or less are all there are. Only if there are more, and by priority, each priority is searched for the first ones.
create or replace function nuncius.find_own_messages(
    p_asked nuncius.take_request[], out places tid[], out finders integer[], out served integer[]
) language plpgsql as $$
begin
    with asked as materialized (
        select * from (
            select distinct on (queue, receiver) * from unnest(p_asked) order by queue, receiver, n) a
        where sender = 0 and (context = 0 or receiver <> 0)
    ), shared as materialized (
        select queue from (
            select distinct on (queue) queue, shared from asked where context = 0 order by queue, n) a
        where exists (select from generate_series(1, 10) p, nuncius.oldest_messages(queue, 0, p, shared[p], null, 1))
    ), own as materialized (
        select * from asked where context <> 0 or queue not in (select queue from shared)
    ), few as materialized (
        select own.n, own.most, ctid, count(*) over (partition by own.n) as number,
            row_number() over (partition by own.n order by message_id) as turn
        from own, lateral (
            select ctid, message_id from nuncius.messages
            where queue_id = own.queue and receiver_id = own.receiver
                and priority = any (array[1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
                and message_id > coalesce((select min(id) from unnest(own.own) id), 0)
            limit 33) m
        where own.context = 0 and own.receiver <> 0 and own.mode <> 1
    ), found as (
        select ctid as place, n from few where number <= 32 and turn <= most
        union all
        select each.place, own.n from own, lateral (
            select m.place from generate_series(1, 10) p,
                lateral nuncius.oldest_messages(own.queue, own.receiver, p, own.own[p], null, own.most) m
            order by case when own.mode = 1 then p end desc, m.message_id limit own.most
        ) each
        where own.context = 0 and own.receiver <> 0
            and (own.mode = 1 or own.n in (select n from few where number > 32))
        union all
        select answer.ctid, own.n from own, lateral (
            select ctid from nuncius.messages
            where queue_id = own.queue and receiver_id = own.receiver and context = own.context and context <> 0
            order by case when own.mode = 1 then priority end desc, message_id limit own.most
        ) answer
        where own.context <> 0
    )
    select coalesce(array_agg(place), '{}'), coalesce(array_agg(n), '{}'), array(select n from own)
    into places, finders, served from found;
end $$;

-- Joins requests that can be carried out as one. A reader without messages of its own makes the same request as any
-- other. Equal requests to a queue, one after the other, are joined and share the messages in their order: the first
-- of them, the lead, asks for all. `leads` has the lead of each request in p_asked.
--
-- Messages for anyone that come after this are for a later look (`upto`): before them, messages may have come for a
-- reader that had none of its own.
create or replace function nuncius.join_requests(
    p_asked nuncius.take_request[], out joined nuncius.take_request[], out leads integer[]
) language plpgsql as $$
begin
    with ends as materialized (
        select queue, array(
            select coalesce((
                select message_id from nuncius.messages
                where queue_id = a.queue and receiver_id = 0 and priority = p
                    and message_id > coalesce(a.shared[p], 0)
                order by message_id desc limit 1), 0)
            from generate_series(1, 10) p order by p) as upto
        from (select distinct on (queue) queue, shared from unnest(p_asked) order by queue, n) a
    ), asked as materialized (
        select n, queue, case when sender <> 0 or context <> 0 or receiver <> 0 and exists (
                select from generate_series(1, 10) p, nuncius.oldest_messages(queue, receiver, p, own[p], null, 1))
            then receiver else 0 end as receiver, sender, context, mode, most, shared, own, e.upto
        from unnest(p_asked) join ends e using (queue)
    ), compared as (
        select *, row(receiver, sender, context, mode)
            is distinct from lag(row(receiver, sender, context, mode)) over same_queue as is_new
        from (select *, context = 0 or receiver = 0 as is_open from asked) a
        window same_queue as (partition by queue, is_open order by n)
    ), turns as (
        select *, count(*) filter (where is_new) over (partition by queue, is_open order by n) as turn
        from compared
    ), together as (
        select *, min(n) over equal as lead, sum(most) over equal as most_together
        from turns window equal as (partition by queue, is_open, turn)
    )
    select array_agg(row(n, queue, receiver, sender, context, mode, most_together, shared, own, upto)
            ::nuncius.take_request order by n) filter (where n = lead),
        array_agg(lead order by n)
    into joined, leads from together;
end $$;

-- Returns the requests of which no two can want the same message. A request for an answer wants only messages for its
-- receiver; all others also want those for anyone.
create or replace function nuncius.next_requests(p_asked nuncius.take_request[])
returns nuncius.take_request[] language plpgsql immutable as $$
begin
    return array(
        select asked from (
            select asked, asked.n, is_open, min(asked.n) over (partition by asked.queue, asked.receiver) as of_receiver,
                min(asked.n) filter (where is_open) over (partition by asked.queue) as open
            from unnest(p_asked) asked, lateral (select asked.context = 0 or asked.receiver = 0 as is_open) o
        ) first
        where n = of_receiver and (not is_open or n = open));
end $$;

-- Returns the first of these messages, in the order of the requests and within each request, up to so many bytes. With
-- p_at_least_one the very first message is included, however large it is.
create or replace function nuncius.first_messages(
    inout places tid[], inout finders integer[], p_asked nuncius.take_request[], p_bytes bigint,
    p_at_least_one boolean
) language plpgsql as $$
begin
    select coalesce(array_agg(place order by upto), '{}'), coalesce(array_agg(n order by upto), '{}')
    into places, finders
    from (
        select f.place, a.n, nuncius.size_of(m.message, m.headers) as bytes,
            sum(nuncius.size_of(m.message, m.headers)) over (
                order by a.n, case when a.mode = 1 then m.priority end desc, m.message_id) as upto
        from unnest(places, finders) f(place, n) join nuncius.messages m on m.ctid = f.place
            join unnest(p_asked) a on a.n = f.n
    ) found
    where upto <= p_bytes or p_at_least_one and upto = bytes;
end $$;

-- Shares messages that joined requests have found, in their order: returns for each of them the request that gets it.
-- p_leads has the lead of each of the requests p_members; p_limits has an item for every request of the call.
create or replace function nuncius.share_messages(
    p_finders integer[], p_members integer[], p_leads integer[], p_limits integer[]
) returns integer[] language plpgsql immutable as $$
begin
    return array(
        select member.n
        from (
            select number, lead, row_number() over (partition by lead order by number) as turn
            from unnest(p_finders) with ordinality f(lead, number)
        ) found
        join (
            select n, lead, p_limits[n] as most, sum(p_limits[n]) over (partition by lead order by n) as upto
            from unnest(p_members, p_leads) m(n, lead)
        ) member on member.lead = found.lead and turn > upto - most and turn <= upto
        order by number);
end $$;
