-- Telesto's procedures for messages: cases of put_many and take_many. Null and 0 both mean "anyone".

-- Puts one message into each of the queues, or into none if one of them does not exist. Returns the ids of
-- the queues it went into.
create or replace function nuncius.put_messages_bytes(
    queue_ids integer[], sender_id integer, receiver_id integer, context integer, priority integer,
    message bytea
) returns setof integer language plpgsql as $$
declare
    v_copies integer := cardinality($1);
begin
    if $5 is null or $5 not between 1 and 10 then
        raise invalid_parameter_value using message = format('priority %s is not between 1 and 10', $5);
    end if;
    return query
    select q from nuncius.put_many(
        $1, null, null, array_fill(1, array[v_copies]), array_fill($2, array[v_copies]),
        array_fill($3, array[v_copies]), array_fill($4, array[v_copies]),
        array_fill($5::smallint, array[v_copies]), null, array_fill($6, array[v_copies]), true) p,
        unnest($1) q
    where p.ids is not null;
end $$;

create or replace function nuncius.put_message_bytes(
    queue_id integer, sender_id integer, receiver_id integer, context integer, priority integer,
    message bytea
) returns integer language sql as $$
    select nuncius.put_messages_bytes(array[$1], $2, $3, $4, $5, $6)
$$;

-- The same for text. PostgreSQL resolves a parameter or literal without a type to these.
create or replace function nuncius.put_messages(
    queue_ids integer[], sender_id integer, receiver_id integer, context integer, priority integer,
    message text
) returns setof integer language sql as $$
    select nuncius.put_messages_bytes($1, $2, $3, $4, $5, nuncius.bytes_of_text($6, 'put_messages_bytes'))
$$;

create or replace function nuncius.put_message(
    queue_id integer, sender_id integer, receiver_id integer, context integer, priority integer,
    message text
) returns integer language sql as $$
    select nuncius.put_messages_bytes(array[$1], $2, $3, $4, $5, nuncius.bytes_of_text($6, 'put_message_bytes'))
$$;

-- The same for values that have another type.
create or replace function nuncius.put_messages(
    queue_ids integer[], sender_id integer, receiver_id integer, context integer, priority integer,
    message bytea
) returns setof integer language sql as $$
    select nuncius.put_messages_bytes($1, $2, $3, $4, $5, $6)
$$;

create or replace function nuncius.put_message(
    queue_id integer, sender_id integer, receiver_id integer, context integer, priority integer,
    message bytea
) returns integer language sql as $$
    select nuncius.put_messages_bytes(array[$1], $2, $3, $4, $5, $6)
$$;

create or replace function nuncius.put_messages(
    queue_ids integer[], sender_id integer, receiver_id integer, context integer, priority integer,
    message jsonb
) returns setof integer language sql as $$
    select nuncius.put_messages_bytes($1, $2, $3, $4, $5, nuncius.as_bytes($6::text))
$$;

create or replace function nuncius.put_message(
    queue_id integer, sender_id integer, receiver_id integer, context integer, priority integer,
    message jsonb
) returns integer language sql as $$
    select nuncius.put_messages_bytes(array[$1], $2, $3, $4, $5, nuncius.as_bytes($6::text))
$$;

create or replace function nuncius.put_messages(
    queue_ids integer[], sender_id integer, receiver_id integer, context integer, priority integer,
    message json
) returns setof integer language sql as $$
    select nuncius.put_messages_bytes($1, $2, $3, $4, $5, nuncius.as_bytes($6::text))
$$;

create or replace function nuncius.put_message(
    queue_id integer, sender_id integer, receiver_id integer, context integer, priority integer,
    message json
) returns integer language sql as $$
    select nuncius.put_messages_bytes(array[$1], $2, $3, $4, $5, nuncius.as_bytes($6::text))
$$;

-- One request to take_many, in the shape of the table. Nodes have these settings on their connections
-- (see store.py for the reason); other callers get them here.
create or replace function nuncius.take_one(
    p_queue integer, p_receiver integer, p_sender integer, p_context integer, p_mode integer
) returns setof nuncius.messages language sql
set enable_seqscan = off set enable_bitmapscan = off as $$
    select message_id, queue_id, sender_id, receiver_id, context, priority, time_of_arrival, message,
        headers::jsonb
    from nuncius.take_many(
        array[p_queue], array[coalesce(p_receiver, 0)], array[coalesce(p_sender, 0)],
        array[coalesce(p_context, 0)], array[p_mode::smallint], array[1])
    where request > 0
$$;

create or replace function nuncius.read_message_by_priority(
    queue_id integer, sender_id integer, receiver_id integer
) returns setof nuncius.messages language sql as $$
    select * from nuncius.take_one($1, $3, $2, 0, 1)
$$;

create or replace function nuncius.read_message_by_timestamp(
    queue_id integer, sender_id integer, receiver_id integer
) returns setof nuncius.messages language sql as $$
    select * from nuncius.take_one($1, $3, $2, 0, 2)
$$;

-- Only an answer to that request matches; without a context there is nothing to find.
create or replace function nuncius.read_response_message(
    queue_id integer, receiver_id integer, context integer
) returns setof nuncius.messages language sql as $$
    select * from nuncius.take_one($1, $2, 0, $3, 2) where $3 <> 0
$$;
