-- Topics and publishers.

-- Returns the topic of that name, created if it does not exist. The number of partitions is for a new topic only.
create or replace function nuncius.ensure_topic(name text, partitions integer default 1)
returns integer language plpgsql as $$
declare
    v_id integer;
begin
    select topic_id into v_id from nuncius.topics where topic_name = name;
    if not found then
        insert into nuncius.topics (topic_name, partition_count) values (name, partitions)
        on conflict do nothing returning topic_id into v_id;
        if found then
            insert into nuncius.partitions (topic_id, partition)
            select v_id, n from generate_series(1, partitions) n;
            perform pg_notify('nuncius', 'c');
        else
            select topic_id into v_id from nuncius.topics where topic_name = name;
        end if;
    end if;
    return v_id;
end $$;

-- Creates a new topic; raises unique_violation if the name is taken.
create or replace function nuncius.create_topic(name text, partitions integer default 1)
returns integer language plpgsql as $$
declare
    v_id integer;
begin
    insert into nuncius.topics (topic_name, partition_count) values (name, partitions)
    returning topic_id into v_id;
    insert into nuncius.partitions (topic_id, partition)
    select v_id, n from generate_series(1, partitions) n;
    perform pg_notify('nuncius', 'c');
    return v_id;
end $$;

-- Adds partitions to a topic until it has so many; it never has fewer afterwards. False: no such topic.
-- A publisher that chose a partition before this commits may still add to it; later ones learn from
-- publish_many that the number has changed: entries of one key are in order within each of its partitions.
create or replace function nuncius.grow_topic(topic text, partitions integer)
returns boolean language plpgsql as $$
declare
    v_id integer;
    v_partitions integer;
begin
    select topic_id, partition_count into v_id, v_partitions
    from nuncius.topics where topic_name = topic for no key update;  -- no other call grows or deletes it
    if not found then
        return false;
    end if;
    if partitions is null or partitions < v_partitions then
        raise invalid_parameter_value using message =
            format('topic %L has %s partitions, and cannot have fewer', topic, v_partitions);
    end if;
    if partitions > v_partitions then
        insert into nuncius.partitions (topic_id, partition)
        select v_id, n from generate_series(v_partitions + 1, partitions) n;
        update nuncius.topics set partition_count = partitions where topic_id = v_id;
        perform pg_notify('nuncius', 'c');
    end if;
    return true;
end $$;

-- Deletes a topic with its subscriptions; the collector removes its entries. False: there was none.
create or replace function nuncius.delete_topic(name text)
returns boolean language plpgsql as $$
declare
    v_id integer := (select topic_id from nuncius.topics where topic_name = name for update);
    v_partitions integer[] := array(select partition_id from nuncius.partitions where topic_id = v_id);
begin
    if v_id is null then
        return false;
    end if;
    perform nuncius.take_locks(78001, v_partitions, v_partitions, true);
    insert into nuncius.condemned select unnest(v_partitions);
    perform nuncius.end_subscriptions(array(
        select subscription_id from nuncius.subscriptions where topic_id = v_id));
    delete from nuncius.publisher_counts where kind = 1 and target_id = v_id;
    delete from nuncius.partitions where topic_id = v_id;
    delete from nuncius.topics where topic_id = v_id;
    perform pg_notify('nuncius', 'c');
    return true;
end $$;

-- Makes all entries of a topic unreadable; offsets continue. Null: no such topic.
create or replace function nuncius.purge_topic(name text)
returns bigint language plpgsql as $$
declare
    v_partitions integer[] := array(
        select partition_id from nuncius.partitions join nuncius.topics using (topic_id)
        where topic_name = name);
    v_purged bigint;
begin
    perform nuncius.take_locks(78001, v_partitions, v_partitions, true);
    with purged as (
        update nuncius.partitions p
        set first_offset = e.next, measured_to = e.next, measured_bytes = 0
        from (select id, nuncius.next_offset(id) as next, f.first_offset
              from unnest(v_partitions) id join nuncius.partitions f on f.partition_id = id) e
        where p.partition_id = e.id
        returning e.next - e.first_offset as entries
    )
    select sum(entries) into v_purged from purged;
    perform pg_notify('nuncius', 'c');
    return v_purged;
end $$;

-- Sets how long entries stay: forever; until all subscribers have them ('subscribers'); for some seconds
-- ('time'); up to some bytes per partition ('size'). False: no such topic.
create or replace function nuncius.set_retention(
    topic text, mode text, seconds bigint default null, bytes bigint default null
) returns boolean language sql as $$
    with changed as (
        update nuncius.topics
        set retention = mode, retention_seconds = seconds, retention_bytes = bytes
        where topic_name = topic returning topic_id
    ), measured_anew as (
        update nuncius.partitions set measured_to = first_offset, measured_bytes = 0
        where topic_id in (select topic_id from changed))
    select exists (select from changed)
$$;

-- Returns the topics of those names with their partitions; all of them if names is null.
create or replace function nuncius.find_topics(names text[])
returns table (
    topic_id integer, topic_name varchar, retention text, retention_seconds bigint, retention_bytes bigint,
    created_at timestamptz, partition_ids integer[], store_ids integer[]
) language sql stable as $$
    select t.topic_id, t.topic_name, t.retention, t.retention_seconds, t.retention_bytes, t.created_at,
        array_agg(p.partition_id order by p.partition), array_agg(p.store_id order by p.partition)
    from nuncius.topics t join nuncius.partitions p using (topic_id)
    where t.topic_name = any (names) or names is null
    group by t.topic_id order by t.topic_name
$$;

-- Returns the offset that the next entry of a partition gets, by its committed entries; for a partition in
-- another store, as last reported by its broker.
create or replace function nuncius.next_offset(p_partition_id integer)
returns bigint language sql stable as $$
    select greatest(p.first_offset, case when p.store_id = 1 then 1 + (
        select e.entry_offset from nuncius.entries e where e.partition_id = p.partition_id
        order by e.entry_offset desc limit 1)
    else (
        select e.next from nuncius.ends e where e.partition_id = p.partition_id
        order by e.next desc limit 1)
    end)
    from nuncius.partitions p where p.partition_id = p_partition_id
$$;

-- Returns the publishers of those names, created if they do not exist.
create or replace function nuncius.ensure_publishers(p_names text[], p_lasting boolean default true)
returns setof nuncius.publishers language plpgsql as $$
begin
    insert into nuncius.publishers (publisher_name, lasting)
    select n, p_lasting from unnest(p_names) n
    where not exists (select from nuncius.publishers where publisher_name = n)
    on conflict do nothing;
    return query select * from nuncius.publishers where publisher_name = any (p_names);
end $$;

-- Returns the publisher of a single request, created if it does not exist, and the fingerprint of the request that it
-- was created for; null if that was before fingerprints were kept. Of concurrent claims of a name, one is the first.
create or replace function nuncius.claim_publisher(
    p_name text, p_fingerprint bytea, out publisher_id integer, out fingerprint bytea
) language plpgsql as $$
begin
    insert into nuncius.publishers (publisher_name, lasting, fingerprint)
    select p_name, false, p_fingerprint
    where not exists (select from nuncius.publishers where publisher_name = p_name)
    on conflict do nothing;
    select p.publisher_id, p.fingerprint into claim_publisher.publisher_id, claim_publisher.fingerprint
    from nuncius.publishers p where p.publisher_name = p_name;
end $$;

-- Returns the last count of a publisher in a topic ('topic') or a queue ('queue'); 0: it never sent there.
create or replace function nuncius.last_count(publisher text, kind text, name text)
returns bigint language sql stable as $$
    select coalesce(max(c.publisher_count), 0)
    from nuncius.publishers p join nuncius.publisher_counts c using (publisher_id)
    where p.publisher_name = publisher and (
        last_count.kind = 'topic' and c.kind = 1
        and c.target_id = (select topic_id from nuncius.topics where topic_name = name)
        or last_count.kind = 'queue' and c.kind = 2
        and c.target_id = (select queue_id from nuncius.queues where queue_name = name))
$$;
