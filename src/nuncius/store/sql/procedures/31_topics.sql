-- Topics, publishers, and publishing as a function call.

-- The topic of that name, made if it is not there yet. Its number of partitions counts only when it is new.
create or replace function nuncius.ensure_topic(p_name text, p_partitions integer default 1)
returns integer language plpgsql as $$
declare
    v_id integer;
begin
    select topic_id into v_id from nuncius.topics where topic_name = p_name;
    if not found then
        insert into nuncius.topics (topic_name, partition_count) values (p_name, p_partitions)
        on conflict do nothing returning topic_id into v_id;
        if found then
            insert into nuncius.partitions (topic_id, partition)
            select v_id, n from generate_series(1, p_partitions) n;
            perform pg_notify('nuncius', 'c');
        else
            select topic_id into v_id from nuncius.topics where topic_name = p_name;
        end if;
    end if;
    return v_id;
end $$;

-- Makes a new topic; raises unique_violation when the name is taken.
create or replace function nuncius.create_topic(p_name text, p_partitions integer default 1)
returns integer language plpgsql as $$
declare
    v_id integer;
begin
    insert into nuncius.topics (topic_name, partition_count) values (p_name, p_partitions)
    returning topic_id into v_id;
    insert into nuncius.partitions (topic_id, partition)
    select v_id, n from generate_series(1, p_partitions) n;
    perform pg_notify('nuncius', 'c');
    return v_id;
end $$;

-- Adds partitions to a topic until it has so many; it never has fewer afterwards. False: no such topic.
-- A publisher that chose a partition before this commits may still add to it, and whoever comes later is told
-- by publish_many that the number has changed: entries of one key are in order within each of its partitions.
create or replace function nuncius.grow_topic(p_topic text, p_partitions integer)
returns boolean language plpgsql as $$
declare
    v_id integer;
    v_partitions integer;
begin
    select topic_id, partition_count into v_id, v_partitions
    from nuncius.topics where topic_name = p_topic for no key update;  -- one grows it, nobody deletes it
    if not found then
        return false;
    end if;
    if p_partitions is null or p_partitions < v_partitions then
        raise invalid_parameter_value using message =
            format('topic %L has %s partitions, and cannot have fewer', p_topic, v_partitions);
    end if;
    if p_partitions > v_partitions then
        insert into nuncius.partitions (topic_id, partition)
        select v_id, n from generate_series(v_partitions + 1, p_partitions) n;
        update nuncius.topics set partition_count = p_partitions where topic_id = v_id;
        perform pg_notify('nuncius', 'c');
    end if;
    return true;
end $$;

-- Deletes a topic with its subscriptions; the collector removes its entries. False: there was none.
create or replace function nuncius.delete_topic(p_name text)
returns boolean language plpgsql as $$
declare
    v_id integer := (select topic_id from nuncius.topics where topic_name = p_name for update);
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

-- Everything there is becomes unreadable; offsets go on from where they were. Null: no such topic.
create or replace function nuncius.purge_topic(p_name text)
returns bigint language plpgsql as $$
declare
    v_partitions integer[] := array(
        select partition_id from nuncius.partitions join nuncius.topics using (topic_id)
        where topic_name = p_name);
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

-- How long entries stay: forever; until all subscribers have them ('subscribers'); for some seconds
-- ('time'); up to some bytes a partition ('size'). False: no such topic.
create or replace function nuncius.set_retention(
    p_topic text, p_mode text, p_seconds bigint default null, p_bytes bigint default null
) returns boolean language sql as $$
    with changed as (
        update nuncius.topics
        set retention = p_mode, retention_seconds = p_seconds, retention_bytes = p_bytes
        where topic_name = p_topic returning topic_id
    ), measured_anew as (
        update nuncius.partitions set measured_to = first_offset, measured_bytes = 0
        where topic_id in (select topic_id from changed))
    select exists (select from changed)
$$;

-- The topics of those names with their partitions; all of them when p_names is null.
create or replace function nuncius.find_topics(p_names text[])
returns table (
    topic_id integer, topic_name varchar, retention text, retention_seconds bigint, retention_bytes bigint,
    created_at timestamptz, partition_ids integer[], store_ids integer[]
) language sql stable as $$
    select t.topic_id, t.topic_name, t.retention, t.retention_seconds, t.retention_bytes, t.created_at,
        array_agg(p.partition_id order by p.partition), array_agg(p.store_id order by p.partition)
    from nuncius.topics t join nuncius.partitions p using (topic_id)
    where t.topic_name = any (p_names) or p_names is null
    group by t.topic_id order by t.topic_name
$$;

-- The offset that the next entry of a partition gets, as far as committed entries tell; for a partition in
-- another store, as far as its broker has said.
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

-- The publishers of those names, made if they are not there yet.
create or replace function nuncius.ensure_publishers(p_names text[], p_lasting boolean default true)
returns setof nuncius.publishers language plpgsql as $$
begin
    insert into nuncius.publishers (publisher_name, lasting)
    select n, p_lasting from unnest(p_names) n
    where not exists (select from nuncius.publishers where publisher_name = n)
    on conflict do nothing;
    return query select * from nuncius.publishers where publisher_name = any (p_names);
end $$;

-- The publisher of a single request, made if there is none of that name, and the fingerprint of the request that it was
-- made for; null if that was before fingerprints were kept. Of requests that claim a name at once, one is the first.
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

-- How far a publisher has come in a topic ('topic') or a queue ('queue'); 0: it never sent there.
create or replace function nuncius.last_count(p_publisher text, p_kind text, p_name text)
returns bigint language sql stable as $$
    select coalesce(max(c.publisher_count), 0)
    from nuncius.publishers p join nuncius.publisher_counts c using (publisher_id)
    where p.publisher_name = p_publisher and (
        p_kind = 'topic' and c.kind = 1
        and c.target_id = (select topic_id from nuncius.topics where topic_name = p_name)
        or p_kind = 'queue' and c.kind = 2
        and c.target_id = (select queue_id from nuncius.queues where queue_name = p_name))
$$;

-- Publishes one entry and answers with its offset, or null if this publisher has sent this count before.
-- Without a partition, a key decides; without a key, a publisher keeps to one partition; else any will do.
-- Inside a transaction of your own the entry appears if and only if that transaction commits.
create or replace function nuncius.publish(
    p_topic text, p_body bytea, p_key text default null, p_headers jsonb default null,
    p_publisher text default null, p_count bigint default null, p_partition integer default null
) returns bigint language plpgsql as $$
declare
    v_topic integer := nuncius.ensure_topic(p_topic);
    v_partitions integer := (select partition_count from nuncius.topics where topic_id = v_topic);
    v_publisher integer;
    v_partition integer;
    v_base bigint;
begin
    if (p_publisher is null) <> (p_count is null) then
        raise invalid_parameter_value using message = 'a publisher needs a count, and a count a publisher';
    end if;
    if p_publisher is not null then
        select publisher_id into v_publisher from nuncius.ensure_publishers(array[p_publisher]);
    end if;
    v_partition := coalesce(p_partition,
        nuncius.partition_of(coalesce(p_key, p_publisher), v_partitions),
        1 + floor(random() * v_partitions)::integer);
    select bases[1] into v_base from nuncius.publish_many(
        array[v_topic], null, array[v_publisher], array[p_count], array[1], array[v_partition], array[1],
        null, array[p_key], array[p_headers::text], array[p_body]);
    if v_base = -4 then
        raise invalid_parameter_value
            using message = format('topic %L has no partition %s', p_topic, v_partition);
    elsif v_base = -5 then
        raise feature_not_supported using message =
            format('partition %s of topic %L is in the store of a broker: publish through a node', v_partition, p_topic);
    elsif v_base = -2 then  -- deleted while we waited for it, so there is none: begin with a new one
        return nuncius.publish(p_topic, p_body, p_key, p_headers, p_publisher, p_count, p_partition);
    end if;
    return nullif(v_base, -1);
end $$;

-- The same for text.
create or replace function nuncius.publish(
    p_topic text, p_body text, p_key text default null, p_headers jsonb default null,
    p_publisher text default null, p_count bigint default null, p_partition integer default null
) returns bigint language sql as $$
    select nuncius.publish(p_topic, convert_to(p_body, 'UTF8'), p_key, p_headers, p_publisher, p_count,
        p_partition)
$$;
