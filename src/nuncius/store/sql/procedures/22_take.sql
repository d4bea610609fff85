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
    v_rest nuncius.take_request[] := array(     -- the requests that are not carried out yet
        select row(n, queue, receiver, sender, context, mode, most,
            p_after[20 * n - 19 : 20 * n - 10], p_after[20 * n - 9 : 20 * n], null)::nuncius.take_request
        from unnest(p_queues, p_receivers, p_senders, p_contexts, p_modes, p_limits) with ordinality
            r(queue, receiver, sender, context, mode, most, n)
        where queue <> all (v_busy) order by n);
    v_asked nuncius.take_request[];             -- those of the step under way
    v_step text := case when (select count(distinct q) = count(*) from unnest(p_queues) q)
        then 'each for itself' else 'few messages' end;
    v_members integer[];                        -- the requests that were joined,
    v_leads integer[];                          --   and to which each of them
    v_places tid[];                             -- the messages that the step has found,
    v_finders integer[];                        --   the request that each of them is for,
    v_served integer[];                         --   and the requests that are carried out
    v_bytes bigint;
    v_left bigint := p_bytes;
begin
    foreach queue_id in array v_busy loop
        request := 0;
        return next;
    end loop;
    -- From here on no other transaction takes from these queues, so a found row stays in place. Requests that cannot
    -- want the same message go together: all, if each is for another queue. Else the cheap looks come first.
    while v_rest <> '{}' and (v_left < 0) is not true loop
        v_asked := v_rest;
        if v_step = 'few messages' then
            select places, finders, served into v_places, v_finders, v_served
            from nuncius.find_few_messages(v_rest);
            v_step := 'own messages';
        elsif v_step = 'own messages' then
            select places, finders, served into v_places, v_finders, v_served
            from nuncius.find_own_messages(v_rest);
            v_step := 'join';
        else
            if v_step = 'join' then
                v_members := array(select n from unnest(v_rest) order by n);
                select joined, leads into v_rest, v_leads from nuncius.join_requests(v_rest);
                v_step := 'in rounds';
            end if;
            if v_step = 'in rounds' then
                v_asked := nuncius.next_requests(v_rest);
            end if;
            select coalesce(array_agg(place), '{}'), coalesce(array_agg(finder), '{}') into v_places, v_finders
            from nuncius.find_messages(v_asked);
            v_served := array(select n from unnest(v_asked));
        end if;
        if v_places <> '{}' and v_left is not null then
            v_bytes := (
                select sum(nuncius.size_of(message, headers)) from nuncius.messages where ctid = any (v_places));
            if v_bytes > v_left then
                select places, finders into v_places, v_finders
                from nuncius.first_messages(v_places, v_finders, v_asked, v_left, v_left = p_bytes);
            end if;
            v_left := v_left - v_bytes;
        end if;
        if v_places <> '{}' then
            if v_step = 'in rounds' then
                v_finders := nuncius.share_messages(v_finders, v_members, v_leads, p_limits);
            end if;
            return query
            with taken as (
                delete from nuncius.messages where ctid = any (v_places) returning ctid as place, *
            )
            select n, t.message_id, t.queue_id, t.sender_id, t.receiver_id, t.context, t.priority,
                t.time_of_arrival, t.message, t.headers::text
            from unnest(v_places, v_finders) f(place, n) join taken t using (place)
            order by n, case when p_modes[n] = 1 then t.priority end desc, t.message_id;
        end if;
        exit when v_step = 'each for itself';
        v_rest := array(select r from unnest(v_rest) r where r.n <> all (v_served) order by r.n);
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
