-- The cluster: membership, placement, and the exchange between the common store and brokers' own stores.
-- p_silence, in several procedures: a node counts as dead after so many seconds without a heartbeat.

-- Returns the brokers that may get partitions.
create or replace function nuncius.healthy_brokers(p_silence double precision)
returns setof nuncius.nodes language sql stable as $$
    select * from nuncius.nodes
    where broker_id is not null and not removed and link_port is not null
        and last_heard > clock_timestamp() - make_interval(secs => p_silence)
$$;

-- Returns nodes that have ended and are not expected back: they stopped, or are silent and the lock that a node holds
-- on its number as long as it lives (78009) is free. A node without a number, a balancer, has ended after a minute of
-- silence. A broker with a store of its own never ends, because its entries are there; nor does one not started yet.
create or replace function nuncius.ended_nodes(p_silence double precision)
returns setof nuncius.nodes language sql stable as $$
    select * from nuncius.nodes n
    where n.store_id = 1 and n.link_port is not null and case
        when n.last_heard is null then true
        when n.last_heard > clock_timestamp() - make_interval(secs => p_silence) then false
        when n.holder is null then
            n.broker_id is null and n.last_heard < clock_timestamp() - interval '1 minute'
        else not exists (
            select from pg_locks l
            where l.locktype = 'advisory' and l.classid = 78009 and l.objid::bigint = n.holder and l.granted
                and l.database = (select d.oid from pg_database d where d.datname = current_database()))
        end
$$;

-- Returns a number for a new broker: the lowest free one. A broker that has ended gives its number up. Call it under
-- the lock (78010, 1).
create or replace function nuncius.new_broker_id()
returns integer language plpgsql as $$
declare
    v_ended integer[] := array(select broker_id from nuncius.ended_nodes(5) where broker_id is not null);
    v_id integer;
begin
    select n into v_id from generate_series(1, (select count(*) + 1 from nuncius.nodes)::integer) n
    where n = any (v_ended) or not exists (select from nuncius.nodes where broker_id = n)
    order by n limit 1;
    delete from nuncius.nodes where broker_id = v_id;
    return v_id;
end $$;

-- Enters a node that has started. A broker known by its address, or by its own store, keeps its number; a
-- removed one is back. p_holder is the number whose lock the node holds. Returns the node's number.
create or replace function nuncius.enter_node(
    p_host text, p_port integer, p_link_port integer, p_roles text[], p_store_id integer,
    p_holder integer default null
) returns integer language plpgsql as $$
declare
    v_id integer;
begin
    perform pg_advisory_xact_lock(78010, 1);
    select node_id into v_id from nuncius.nodes
    where host = p_host and port = p_port or p_store_id <> 1 and store_id = p_store_id
    order by store_id = p_store_id and p_store_id <> 1 desc limit 1;
    if found then
        delete from nuncius.nodes where host = p_host and port = p_port and node_id <> v_id;
        update nuncius.nodes
        set host = p_host, port = p_port, link_port = p_link_port, roles = p_roles, store_id = p_store_id,
            removed = false, started_at = clock_timestamp(), last_heard = clock_timestamp(), holder = p_holder,
            broker_id = case when 'broker' = any (p_roles) then broker_id end
        where node_id = v_id;
    else
        insert into nuncius.nodes (host, port, link_port, roles, store_id, last_heard, holder)
        values (p_host, p_port, p_link_port, p_roles, p_store_id, clock_timestamp(), p_holder)
        returning node_id into v_id;
    end if;
    update nuncius.nodes set broker_id = nuncius.new_broker_id()
    where node_id = v_id and broker_id is null and 'broker' = any (p_roles);
    return v_id;
end $$;

-- Records a heartbeat of a node. False: it is not known any more and has to enter again.
create or replace function nuncius.hear_node(p_node_id integer)
returns boolean language sql as $$
    with heard as (
        update nuncius.nodes set last_heard = clock_timestamp() where node_id = p_node_id returning 1
    )
    select exists (select from heard)
$$;

-- Records that a node stops: from now on it is not expected any more. One with several processes stops with its last.
create or replace function nuncius.leave_node(p_node_id integer, p_link_port integer)
returns void language sql as $$
    update nuncius.nodes set last_heard = null where node_id = p_node_id and link_port = p_link_port
$$;

-- Lists all nodes but those that have ended, with their data.
create or replace function nuncius.list_nodes(p_silence double precision)
returns table (
    node_id integer, host text, port integer, link_port integer, roles text[], broker_id integer,
    store_id integer, removed boolean, started_at timestamptz, last_heard timestamptz, is_alive boolean,
    partitions bigint
) language sql stable as $$
    select n.node_id, n.host, n.port, n.link_port, n.roles, n.broker_id, n.store_id, n.removed, n.started_at,
        n.last_heard, coalesce(n.last_heard > clock_timestamp() - make_interval(secs => p_silence), false),
        (select count(*) from nuncius.assignments a where a.broker_id = n.broker_id)
    from nuncius.nodes n where n.node_id not in (select e.node_id from nuncius.ended_nodes(p_silence) e)
    order by n.node_id
$$;

-- Expects a broker at this port from now on, even if it has not started yet; if it is not known on that host, on the
-- host of its last heartbeat. Returns its number. Null: the node there is no broker.
create or replace function nuncius.add_broker(p_host text, p_port integer)
returns integer language plpgsql as $$
declare
    v_node integer;
    v_id integer;
begin
    perform pg_advisory_xact_lock(78010, 1);
    select node_id into v_node from nuncius.nodes where port = p_port and 'broker' = any (roles)
    order by host = p_host desc, last_heard desc nulls last limit 1;
    if found then
        -- A broker that has ended is expected from now on.
        update nuncius.nodes n set removed = false,
            link_port = case when n.node_id in (select node_id from nuncius.ended_nodes(5)) then null else link_port end
        where n.node_id = v_node;
    elsif exists (select from nuncius.nodes where host = p_host and port = p_port) then
        return null;
    else
        insert into nuncius.nodes (host, port, roles) values (p_host, p_port, '{broker}')
        returning node_id into v_node;
    end if;
    update nuncius.nodes set broker_id = nuncius.new_broker_id() where node_id = v_node and broker_id is null;
    select broker_id into v_id from nuncius.nodes where node_id = v_node;
    perform pg_notify('nuncius', 'c');
    return v_id;
end $$;

-- Removes a broker: its partitions go to others, except those in its own store, which can still be read while it
-- runs. False: there is no such broker.
create or replace function nuncius.remove_broker(p_broker_id integer, p_silence double precision)
returns boolean language plpgsql as $$
begin
    update nuncius.nodes set removed = true where broker_id = p_broker_id;
    if not found then
        return false;
    end if;
    perform nuncius.reassign_partitions(p_silence);
    perform pg_notify('nuncius', 'c');
    return true;
end $$;

-- Assigns partitions of a topic without a broker to healthy brokers at random: to those with a recent heartbeat
-- that are not in p_lost, if there are any. For a broker with a store of its own an empty partition moves there; one
-- that has entries here stays here, and that broker serves it. Returns how many partitions got a broker.
create or replace function nuncius.place_partitions(
    p_topic_id integer, p_silence double precision, p_lost integer[] default '{}'
) returns integer language plpgsql as $$
declare
    v_partition integer;
    v_broker record;
    v_placed integer := 0;
begin
    perform pg_advisory_xact_lock(78010, 2);
    for v_partition in
        select partition_id from nuncius.partitions p where topic_id = p_topic_id and not exists (
            select from nuncius.assignments a where a.partition_id = p.partition_id)
        order by 1
    loop
        select broker_id, store_id into v_broker from nuncius.healthy_brokers(p_silence)
        order by broker_id = any (p_lost), last_heard < clock_timestamp() - interval '2 seconds', random() limit 1;
        exit when not found;
        perform pg_advisory_xact_lock(78001, v_partition);
        update nuncius.partitions set store_id = v_broker.store_id
        where partition_id = v_partition and store_id = 1 and v_broker.store_id <> 1
            and nuncius.next_offset(v_partition) = 0;
        insert into nuncius.assignments (partition_id, broker_id) values (v_partition, v_broker.broker_id)
        on conflict do nothing;
        v_placed := v_placed + 1;
    end loop;
    if v_placed > 0 then
        perform pg_notify('nuncius', 'c');
    end if;
    return v_placed;
end $$;

-- Reassigns partitions of dead brokers to others at random. No entry moves: only the assignment changes.
-- Partitions in a broker's own store wait for their broker. Returns how many were reassigned.
create or replace function nuncius.reassign_partitions(p_silence double precision)
returns bigint language plpgsql as $$
declare
    v_changed bigint;
begin
    if not pg_try_advisory_xact_lock(78010, 3)
        or not exists (select from nuncius.healthy_brokers(p_silence)) then
        return 0;
    end if;
    delete from nuncius.assignments a
    where not exists (select from nuncius.partitions p where p.partition_id = a.partition_id);
    with lost as materialized (
        select a.partition_id from nuncius.assignments a join nuncius.partitions p using (partition_id)
        where p.store_id = 1
            and a.broker_id not in (select broker_id from nuncius.healthy_brokers(p_silence))
    ), chosen as (
        select l.partition_id, (
            select h.broker_id from nuncius.healthy_brokers(p_silence) h
            where l.partition_id is not null
            order by h.last_heard < clock_timestamp() - interval '2 seconds', random() limit 1) as broker_id
        from lost l
    )
    update nuncius.assignments a set broker_id = c.broker_id from chosen c
    where a.partition_id = c.partition_id and c.broker_id is not null;
    get diagnostics v_changed = row_count;
    if v_changed > 0 then
        perform pg_notify('nuncius', 'c');
    end if;
    return v_changed;
end $$;

-- Spreads the partitions of the common store evenly over the healthy brokers, with as few changes as possible. No entry
-- moves: only the assignment changes. Partitions in a broker's own store stay with it, and do not count. Returns how
-- many were reassigned.
create or replace function nuncius.rebalance_partitions(p_silence double precision)
returns bigint language plpgsql as $$
declare
    v_changed bigint;
begin
    perform pg_advisory_xact_lock(78010, 2);
    perform pg_advisory_xact_lock(78010, 3);
    with served as materialized (
        select a.partition_id, a.broker_id,
            row_number() over (partition by a.broker_id order by a.partition_id) as n
        from nuncius.assignments a join nuncius.partitions p using (partition_id) where p.store_id = 1
    ), counted as materialized (
        select h.broker_id, count(s.partition_id) as has
        from nuncius.healthy_brokers(p_silence) h left join served s using (broker_id) group by h.broker_id
    ), shares as materialized (
        -- The remainder goes to the brokers that have the most.
        select broker_id, has, total / brokers
            + case when row_number() over (order by has desc, broker_id) <= total % brokers then 1 else 0 end as share
        from counted, (select count(*) as brokers from counted) b, (select count(*) as total from served) t
    ), spare as (
        select s.partition_id, row_number() over (order by s.n desc, s.partition_id) as n
        from served s left join shares h using (broker_id) where s.n > coalesce(h.share, 0)
    ), room as (
        select broker_id, row_number() over (order by place, broker_id) as n
        from shares, generate_series(has + 1, share) place
    )
    update nuncius.assignments a set broker_id = r.broker_id
    from spare s join room r using (n) where a.partition_id = s.partition_id;
    get diagnostics v_changed = row_count;
    if v_changed > 0 then
        perform pg_notify('nuncius', 'c');
    end if;
    return v_changed;
end $$;

-- Returns the brokers of a topic's partitions, in order. A partition in another store is served by the broker of
-- that store.
create or replace function nuncius.route_topic(p_topic_id integer)
returns table (partition_id integer, store_id integer, broker_id integer) language sql stable as $$
    select p.partition_id, p.store_id, case when p.store_id = 1 then a.broker_id else (
        select n.broker_id from nuncius.nodes n where n.store_id = p.store_id limit 1) end
    from nuncius.partitions p left join nuncius.assignments a using (partition_id)
    where p.topic_id = p_topic_id order by p.partition
$$;

-- Returns the partitions whose entries are in other stores, with these stores.
create or replace function nuncius.partitions_elsewhere()
returns table (partition_id integer, store_id integer) language sql stable as $$
    select p.partition_id, p.store_id from nuncius.partitions p where p.store_id <> 1
$$;

-- Returns the partitions of entries with an identity; the first decision stands. Items go together.
create or replace function nuncius.claim_many(
    p_publishers integer[], p_topics integer[], p_counts bigint[], p_partitions text[]
) returns text[] language plpgsql as $$
begin
    insert into nuncius.claims (publisher_id, topic_id, publisher_count, partitions)
    select * from unnest(p_publishers, p_topics, p_counts, p_partitions) on conflict do nothing;
    return array(
        select c.partitions
        from unnest(p_publishers, p_topics, p_counts) with ordinality u(publisher, topic, count, n)
        join nuncius.claims c on c.publisher_id = u.publisher and c.topic_id = u.topic
            and c.publisher_count = u.count
        order by u.n);
end $$;

-- Returns the number of a broker's own store in this catalogue; p_known is its number so far.
create or replace function nuncius.enter_store(p_known integer, p_dsn text)
returns integer language plpgsql as $$
declare
    v_id integer := p_known;
begin
    update nuncius.stores set dsn = p_dsn where store_id = v_id;
    if not found then
        v_id := nextval('nuncius.stores_store_id_seq');
        insert into nuncius.stores (store_id, store_name, dsn) values (v_id, 'broker-store-' || v_id, p_dsn);
    end if;
    return v_id;
end $$;

-- Returns the partitions of a broker's own store: their topics with retention, their first readable offset, and the
-- offset from which subscribers block retention (null: none does).
create or replace function nuncius.partitions_of_store(p_store_id integer)
returns table (
    topic_id integer, topic_name varchar, partition_count integer, retention text, retention_seconds bigint,
    retention_bytes bigint, partition_id integer, partition integer, first_offset bigint, held bigint
) language sql stable as $$
    select t.topic_id, t.topic_name, t.partition_count, t.retention, t.retention_seconds, t.retention_bytes,
        p.partition_id, p.partition, p.first_offset, (
            select min(least(coalesce((
                select max(c.position) from nuncius.positions c
                where c.subscription_id = s.subscription_id and c.partition_id = p.partition_id), 0), (
                select min(f.entry_offset) from nuncius.failures f
                where f.subscription_id = s.subscription_id and f.partition_id = p.partition_id)))
            from nuncius.subscriptions s
            where s.topic_id = t.topic_id and (s.holds_retention or t.retention = 'subscribers'))
    from nuncius.partitions p join nuncius.topics t using (topic_id)
    where p.store_id = p_store_id order by p.partition_id
$$;

-- Records a broker's report: the ends of its partitions, and their first readable offsets.
create or replace function nuncius.note_ends(p_partition_ids integer[], p_firsts bigint[], p_nexts bigint[])
returns void language sql as $$
    insert into nuncius.ends (partition_id, next)
    select u.id, u.next from unnest(p_partition_ids, p_nexts) u(id, next)
    where exists (select from nuncius.partitions p where p.partition_id = u.id and p.store_id <> 1)
    on conflict do nothing;
    delete from nuncius.ends e using unnest(p_partition_ids, p_nexts) u(id, next)
    where e.partition_id = u.id and e.next < u.next;
    update nuncius.partitions p set first_offset = u.first
    from unnest(p_partition_ids, p_firsts) u(id, first)
    where p.partition_id = u.id and p.store_id <> 1 and p.first_offset < u.first;
$$;

-- In a broker's own store: copies the catalogue of its partitions from the common store, item by item as
-- partitions_of_store returns them. All subscribers that block retention are one here, the one with the highest lag.
-- Partitions that are not named are deleted, and their entries condemned.
create or replace function nuncius.mirror_partitions(
    p_topic_ids integer[], p_names text[], p_counts integer[], p_retentions text[], p_seconds bigint[],
    p_bytes bigint[], p_partition_ids integer[], p_partitions integer[], p_firsts bigint[], p_held bigint[]
) returns void language plpgsql as $$
begin
    perform pg_advisory_xact_lock(78010, 4);
    perform nuncius.delete_topic(t.topic_name) from nuncius.topics t
    where not t.topic_id = any (p_topic_ids);
    -- A topic that was deleted and created again, under the same name, is another.
    perform nuncius.delete_topic(t.topic_name) from nuncius.topics t
    join unnest(p_topic_ids, p_names) u(id, name) on u.name = t.topic_name and u.id <> t.topic_id;

    insert into nuncius.topics as t
        (topic_id, topic_name, partition_count, retention, retention_seconds, retention_bytes)
    select distinct on (id) id, name, count, retention, seconds, bytes
    from unnest(p_topic_ids, p_names, p_counts, p_retentions, p_seconds, p_bytes)
        u(id, name, count, retention, seconds, bytes)
    on conflict (topic_id) do update set partition_count = excluded.partition_count,
        retention = excluded.retention, retention_seconds = excluded.retention_seconds,
        retention_bytes = excluded.retention_bytes
    where (t.partition_count, t.retention, t.retention_seconds, t.retention_bytes) is distinct from
        (excluded.partition_count, excluded.retention, excluded.retention_seconds, excluded.retention_bytes);
    insert into nuncius.partitions as p (partition_id, topic_id, partition, first_offset)
    select u.* from unnest(p_partition_ids, p_topic_ids, p_partitions, p_firsts) u(id, topic, partition, first)
    on conflict (partition_id) do update set first_offset = excluded.first_offset
    where p.first_offset < excluded.first_offset;

    insert into nuncius.subscriptions (topic_id, subscriber_name, holds_retention)
    select distinct id, 'the common store', true from unnest(p_topic_ids, p_held) u(id, held)
    where held is not null on conflict do nothing;
    perform nuncius.end_subscriptions(array(
        select s.subscription_id from nuncius.subscriptions s where not exists (
            select from unnest(p_topic_ids, p_held) u(id, held)
            where u.id = s.topic_id and u.held is not null)));
    insert into nuncius.positions (subscription_id, partition_id, position)
    select s.subscription_id, u.id, u.held from unnest(p_topic_ids, p_partition_ids, p_held) u(topic, id, held)
    join nuncius.subscriptions s on s.topic_id = u.topic
    where u.held is not null on conflict do nothing;
end $$;

-- In a broker's own store: returns the arguments for note_ends.
create or replace function nuncius.ends_of_all()
returns table (partition_id integer, first_offset bigint, next bigint) language sql stable as $$
    select p.partition_id, p.first_offset, nuncius.next_offset(p.partition_id) from nuncius.partitions p
$$;

-- Deletes nodes that were silent for a day and have nothing, and claims that no publisher will repeat any more.
create or replace function nuncius.tidy_cluster()
returns bigint language plpgsql as $$
declare
    v_nodes bigint;
    v_claims bigint;
begin
    delete from nuncius.nodes n
    where coalesce(n.last_heard, n.started_at) < now() - interval '1 day' and n.store_id = 1
        and not exists (select from nuncius.assignments a where a.broker_id = n.broker_id);
    get diagnostics v_nodes = row_count;
    delete from nuncius.claims where claimed_at < now() - interval '1 day';
    get diagnostics v_claims = row_count;
    delete from nuncius.ends e
    where not exists (select from nuncius.partitions p where p.partition_id = e.partition_id);
    return v_nodes + v_claims;
end $$;
