-- Telesto's procedures for clients and queues, under the names and with the results of its report. Each is
-- a case of an array-valued one. Names that exist already raise unique_violation, as they did there.

create or replace function nuncius.register_clients(p_names text[], p_modes smallint[])
returns setof nuncius.clients language sql as $$
    insert into nuncius.clients (client_name, client_mode)
    select name, mode from unnest(p_names, p_modes) u(name, mode)
    returning *
$$;

create or replace function nuncius.request_id(client_name text, mode integer)
returns integer language sql as $$
    select client_id from nuncius.register_clients(array[$1], array[$2::smallint])
$$;

create or replace function nuncius.find_clients(p_ids integer[], p_names text[] default null)
returns setof nuncius.clients language sql stable as $$
    select * from nuncius.clients where client_id = any (p_ids) or client_name = any (p_names)
    order by client_id
$$;

create or replace function nuncius.identify(client_id integer)
returns setof nuncius.clients language sql stable as $$
    select * from nuncius.find_clients(array[$1])
$$;

create or replace function nuncius.delete_clients(p_ids integer[])
returns setof integer language sql as $$
    delete from nuncius.clients where client_id = any (p_ids) returning client_id
$$;

create or replace function nuncius.delete_client(client_id integer)
returns integer language sql as $$
    select nuncius.delete_clients(array[$1])
$$;

create or replace function nuncius.create_queues(p_names text[])
returns table (queue_id integer, queue_name varchar) language sql as $$
    select pg_notify('nuncius', 'c');
    insert into nuncius.queues (queue_name) select unnest(p_names) returning queue_id, queue_name
$$;

create or replace function nuncius.create_queue(queue_name text)
returns table (queue_id integer, queue_name varchar) language sql as $$
    select * from nuncius.create_queues(array[$1])
$$;

-- Empties queues, also of messages that wait for redelivery, but not of those in flight. Returns the number of
-- messages. Waits for transactions at work in these queues.
create or replace function nuncius.purge_queues(p_ids integer[])
returns bigint language plpgsql as $$
declare
    v_removed bigint;
    v_waiting bigint;
begin
    perform nuncius.take_locks(78002, p_ids, p_ids, true);
    perform nuncius.take_locks(78003, p_ids, p_ids, true);
    delete from nuncius.messages where queue_id = any (p_ids);
    get diagnostics v_removed = row_count;
    delete from nuncius.leases where holder = 0 and queue_id = any (p_ids);
    get diagnostics v_waiting = row_count;
    return v_removed + v_waiting;
end $$;

-- Deletes queues with their messages, in flight or not. A put under way comes before; a later one finds no queue.
create or replace function nuncius.delete_queues(p_ids integer[])
returns setof integer language plpgsql as $$
begin
    perform nuncius.purge_queues(p_ids);
    delete from nuncius.publisher_counts where kind = 2 and target_id = any (p_ids);
    delete from nuncius.leases where queue_id = any (p_ids);
    return query delete from nuncius.queues q where q.queue_id = any (p_ids) returning q.queue_id;
    if found then
        perform pg_notify('nuncius', 'c');
        perform nuncius.announce(null, p_ids);  -- so that waiting readers get an error
    end if;
end $$;

create or replace function nuncius.delete_queue(queue_id integer)
returns integer language sql as $$
    select nuncius.delete_queues(array[$1])
$$;

-- Queues by id or by name; all of them when neither is given.
create or replace function nuncius.find_queues(p_ids integer[], p_names text[])
returns table (queue_id integer, queue_name varchar) language sql stable as $$
    select q.queue_id, q.queue_name from nuncius.queues q
    where q.queue_id = any (p_ids) or q.queue_name = any (p_names) or (p_ids is null and p_names is null)
    order by q.queue_id
$$;

create or replace function nuncius.get_queue_id(queue_name text)
returns table (queue_id integer, queue_name varchar) language sql stable as $$
    select * from nuncius.find_queues(null, array[$1])
$$;

create or replace function nuncius.get_queue_name(queue_id integer)
returns table (queue_id integer, queue_name varchar) language sql stable as $$
    select * from nuncius.find_queues(array[$1], null)
$$;

create or replace function nuncius.list_queues()
returns table (queue_id integer, queue_name varchar) language sql stable as $$
    select * from nuncius.find_queues(null, null)
$$;

-- Pairs of a queue and one of these clients for which it has messages, each pair once.
create or replace function nuncius.active_queues(p_clients integer[])
returns table (client_id integer, queue_id integer, queue_name varchar) language sql stable as $$
    select c, q.queue_id, q.queue_name
    from unnest(p_clients) c, nuncius.queues q
    where exists (select from nuncius.messages m where m.queue_id = q.queue_id and m.receiver_id = 0)
        or exists (select from nuncius.messages m where m.queue_id = q.queue_id and m.receiver_id = c)
    order by c, q.queue_id
$$;

create or replace function nuncius.get_active_queues(client_id integer)
returns table (queue_id integer, queue_name varchar) language sql stable as $$
    select a.queue_id, a.queue_name from nuncius.active_queues(array[$1]) a
$$;

-- Lists messages of queues, oldest first, without taking them.
create or replace function nuncius.browse_queues(
    p_ids integer[], p_after bigint default 0, p_limit integer default null
) returns setof nuncius.messages language sql stable as $$
    select * from nuncius.messages
    where queue_id = any (p_ids) and message_id > p_after
    order by message_id limit p_limit
$$;

create or replace function nuncius.get_messages_from_queue(queue_id integer)
returns setof nuncius.messages language sql stable as $$
    select * from nuncius.browse_queues(array[$1])
$$;
