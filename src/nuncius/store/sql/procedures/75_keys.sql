-- The key-value store of the ring. A node passes the hash of each key, because only nodes know the ring.
-- Locks: 78012, with the last eight bits of a hash, for changing keys; 78013, 0 of the owner of the keys (for
-- the life of the node), and 1 of each transaction that changes keys, so that a new owner can wait for them.

-- Carries out changes in the given order, in one transaction. One item per change:
--   p_kinds   0 put, 1 append to a list, 2 remove from a list, 3 post, 4 raise: put a number unless one as large
--             is there
--   p_hashes, p_keys
--   p_items   the value of a put, a post or a raise (decimal, without leading zeros), else the item
--   p_lists, p_mentions, p_groups, p_bodies   of a post: the list, the item for it, and the key and the body of
--             its entry in the topic p_topic. Null as a whole when there is no post.
-- Returns per change: put and raise 0; append 0, or 4 if the item exists; remove 0, 1 without such a list, 2 without
-- such an item; post the length of its list afterwards. A post whose key exists changes nothing. `topic` is the id of
-- the topic if it has new entries; the caller notifies the other nodes.
create or replace function nuncius.change_keys(
    p_kinds smallint[], p_hashes bigint[], p_keys bytea[], p_items bytea[],
    p_lists bytea[], p_mentions bytea[], p_groups text[], p_bodies bytea[], p_topic text,
    out answers bigint[], out topic integer
) language plpgsql as $$
declare
    v_posts record;
    v_last integer;
    i integer := 1;
begin
    perform pg_advisory_xact_lock_shared(78013, 1);
    perform nuncius.take_locks(78012, array(select (h % 256)::integer from unnest(p_hashes) h), null, true);
    answers := '{}';
    while i <= cardinality(p_kinds) loop
        v_last := i;
        if p_kinds[i] = 3 then  -- this post and those that follow it
            while p_kinds[v_last + 1] = 3 loop
                v_last := v_last + 1;
            end loop;
            select * into v_posts from nuncius.add_posts(
                p_hashes[i:v_last], p_keys[i:v_last], p_items[i:v_last], p_lists[i:v_last],
                p_mentions[i:v_last], p_groups[i:v_last], p_bodies[i:v_last], p_topic);
            answers := answers || v_posts.lengths;
            topic := coalesce(v_posts.topic, topic);
        elsif p_kinds[i] = 1 then
            answers[i] := case when nuncius.add_item(p_hashes[i], p_keys[i], p_items[i]) then 0 else 4 end;
        elsif p_kinds[i] = 2 then
            delete from nuncius.key_items where hash = p_hashes[i] and key = p_keys[i]
                and digest = sha256(p_items[i]);
            answers[i] := case when found then 0 when exists (
                select from nuncius.key_lists where hash = p_hashes[i] and key = p_keys[i]) then 2 else 1 end;
        else
            perform nuncius.set_value(p_hashes[i], p_keys[i], p_items[i], p_kinds[i] = 4);
            answers[i] := 0;
        end if;
        i := v_last + 1;
    end loop;
end $$;

-- The same, and notifies the nodes: for nodes of version 0.1.
create or replace function nuncius.write_keys(
    p_kinds smallint[], p_hashes bigint[], p_keys bytea[], p_items bytea[],
    p_lists bytea[], p_mentions bytea[], p_groups text[], p_bodies bytea[], p_topic text
) returns bigint[] language plpgsql as $$
declare
    v_changed record;
begin
    select * into v_changed from nuncius.change_keys(
        p_kinds, p_hashes, p_keys, p_items, p_lists, p_mentions, p_groups, p_bodies, p_topic);
    if v_changed.topic is not null then
        perform nuncius.announce(array[v_changed.topic], null);
    end if;
    return v_changed.answers;
end $$;

-- Sets the value of a key. With p_raise the value is a number, and stays if it is as large already.
create or replace function nuncius.set_value(p_hash bigint, p_key bytea, p_value bytea, p_raise boolean)
returns void language plpgsql as $$
declare
    v_version bigint;
    v_number bytea;
begin
    select version, case when p_raise then value end into v_version, v_number
    from nuncius.key_values
    where hash = p_hash and key = p_key order by version desc limit 1;
    if (length(v_number), v_number) >= (length(p_value), p_value) then
        return;
    end if;
    insert into nuncius.key_values (hash, key, version, value)
    values (p_hash, p_key, coalesce(v_version, 0) + 1, p_value);
    if v_version is not null then
        delete from nuncius.key_values where hash = p_hash and key = p_key and version = v_version;
    end if;
end $$;

-- Stores posts. Returns for each the length of its list afterwards; and the topic, if it has new entries.
create or replace function nuncius.add_posts(
    p_hashes bigint[], p_keys bytea[], p_values bytea[], p_lists bytea[], p_items bytea[],
    p_groups text[], p_bodies bytea[], p_topic text, out lengths bigint[], out topic integer
) language plpgsql as $$
declare
    v_new integer[];  -- the posts whose key did not exist
begin
    with posts as materialized (
        select p.*, l.*, row_number() over (partition by hash, key order by n) = 1 and not exists (
            select from nuncius.key_values v where v.hash = p.hash and v.key = p.key) as is_new
        from unnest(p_hashes, p_keys, p_values, p_lists, p_items) with ordinality p(hash, key, value, list, item, n),
            lateral (
                select count(*) as length, coalesce(max(i.position), 0) as last,
                    coalesce(bool_or(i.item = p.item), false) as has_item
                from nuncius.key_items i where i.hash = p.hash and i.key = p.list) l
    ), items as (
        select *, is_new and not has_item
            and row_number() over (partition by hash, list, item, is_new order by n) = 1 as is_added
        from posts
    ), placed as materialized (
        select *, count(*) filter (where is_added) over (partition by hash, list order by n) as added from items
    ), valued as (
        insert into nuncius.key_values (hash, key, version, value)
        select hash, key, 1, value from placed where is_new
    ), listed as (
        insert into nuncius.key_lists (hash, key)
        select hash, list from placed where is_added and last = 0 and added = 1 on conflict do nothing
    ), added as (
        insert into nuncius.key_items (hash, key, position, item, digest)
        select hash, list, last + added, item, sha256(item) from placed where is_added
    )
    select array_agg(length + added order by n), array_agg(n order by n) filter (where is_new)
    into lengths, v_new from placed;
    if v_new is not null then
        topic := nuncius.publish_posts(p_topic, array(select p_groups[n] from unnest(v_new) n),
            array(select p_bodies[n] from unnest(v_new) n));
    end if;
end $$;

-- Adds an item to the end of a list, which is created if it does not exist. False: the item exists already.
create or replace function nuncius.add_item(p_hash bigint, p_key bytea, p_item bytea)
returns boolean language plpgsql as $$
declare
    v_last bigint;
begin
    select position into v_last from nuncius.key_items
    where hash = p_hash and key = p_key order by position desc limit 1;
    if v_last is null then
        insert into nuncius.key_lists (hash, key) values (p_hash, p_key) on conflict do nothing;
    end if;
    insert into nuncius.key_items (hash, key, position, item, digest)
    values (p_hash, p_key, coalesce(v_last, 0) + 1, p_item, sha256(p_item))
    on conflict (hash, key, digest) do nothing;
    return found;
end $$;

-- Publishes entries with these keys and bodies, in order, and returns their topic, which is created if it does not
-- exist.
create or replace function nuncius.publish_posts(p_topic text, p_keys text[], p_bodies bytea[])
returns integer language plpgsql as $$
declare
    v_topic integer := nuncius.ensure_topic(p_topic);
    v_layout integer := (select partition_count from nuncius.topics where topic_id = v_topic);
    v_bases bigint[];
begin
    if v_layout = 1 then
        v_bases := (select bases from nuncius.publish_many(array[v_topic], '{1}', null, null, '{1}', '{1}',
            array[cardinality(p_keys)], null, p_keys, null, p_bodies, true, false));
    else
        select bases into v_bases from (
            select array_agg(partition order by partition) as partitions,
                array_agg(size order by partition) as sizes
            from (select nuncius.partition_of(k, v_layout) as partition, count(*)::integer as size
                from unnest(p_keys) k group by 1) s) runs,
        (select array_agg((n - 1)::integer order by p, n) as numbers, array_agg(k order by p, n) as keys,
                array_agg(b order by p, n) as bodies
            from unnest(p_keys, p_bodies) with ordinality e(k, b, n), nuncius.partition_of(k, v_layout) p) entries,
        nuncius.publish_many(array[v_topic], array[v_layout], null, null,
            array_fill(1, array[cardinality(partitions)]), partitions, sizes, numbers, keys, null, bodies, true, false);
    end if;
    if 0 > any (v_bases) then  -- the topic was deleted or has grown meanwhile
        raise serialization_failure using message = 'the topic has changed; try again';
    end if;
    return v_topic;
end $$;

-- Returns the values of keys, in the order of the arguments; null if there is none.
create or replace function nuncius.read_values(p_hashes bigint[], p_keys bytea[])
returns setof bytea language sql stable as $$
    select (select v.value from nuncius.key_values v where v.hash = q.hash and v.key = q.key
        order by v.version desc limit 1)
    from unnest(p_hashes, p_keys) with ordinality q(hash, key, n) order by n
$$;

-- Returns the lists of keys, in the order of the arguments; null if there is none.
create or replace function nuncius.read_lists(p_hashes bigint[], p_keys bytea[])
returns setof bytea[] language sql stable as $$
    select case when exists (select from nuncius.key_lists l where l.hash = q.hash and l.key = q.key) then
        array(select i.item from nuncius.key_items i where i.hash = q.hash and i.key = q.key order by i.position)
        end
    from unnest(p_hashes, p_keys) with ordinality q(hash, key, n) order by n
$$;

-- Returns keys of a range of hashes after a given one, for another node: at most p_limit, in order, those with a
-- value and those with a list one after the other.
create or replace function nuncius.keys_of_range(
    p_first bigint, p_last bigint, p_after_hash bigint, p_after_key bytea, p_limit integer
) returns table (hash bigint, key bytea, value bytea, items bytea[]) language sql stable as $$
    with found as (
        (select v.hash, v.key from nuncius.key_values v
            where v.hash between p_first and p_last and (v.hash, v.key) > (p_after_hash, p_after_key)
            order by v.hash, v.key limit p_limit)
        union
        (select l.hash, l.key from nuncius.key_lists l
            where l.hash between p_first and p_last and (l.hash, l.key) > (p_after_hash, p_after_key)
            order by l.hash, l.key limit p_limit)
        order by hash, key limit p_limit
    )
    select f.hash, f.key,
        (select v.value from nuncius.key_values v where v.hash = f.hash and v.key = f.key
            order by v.version desc limit 1),
        case when exists (select from nuncius.key_lists l where l.hash = f.hash and l.key = f.key) then
            array(select i.item from nuncius.key_items i where i.hash = f.hash and i.key = f.key
                order by i.position) end
    from found f order by 1, 2
$$;

-- Deletes all keys in a range of hashes.
create or replace function nuncius.forget_range(p_first bigint, p_last bigint) returns void language sql as $$
    delete from nuncius.key_values where hash between p_first and p_last;
    delete from nuncius.key_items where hash between p_first and p_last;
    delete from nuncius.key_lists where hash between p_first and p_last;
$$;

-- Adds one key as another node had it; an existing key is replaced.
create or replace function nuncius.adopt_key(p_hash bigint, p_key bytea, p_value bytea, p_items bytea[])
returns void language plpgsql as $$
begin
    delete from nuncius.key_values where hash = p_hash and key = p_key;
    delete from nuncius.key_items where hash = p_hash and key = p_key;
    if p_value is not null then
        insert into nuncius.key_values (hash, key, version, value) values (p_hash, p_key, 1, p_value);
    end if;
    if p_items is not null then
        insert into nuncius.key_lists (hash, key) values (p_hash, p_key) on conflict do nothing;
        insert into nuncius.key_items (hash, key, position, item, digest)
        select p_hash, p_key, n, item, sha256(item) from unnest(p_items) with ordinality i(item, n);
    end if;
end $$;

-- Stores notes, each in place of the last one of its name.
create or replace function nuncius.note_ring(p_names text[], p_notes text[]) returns void language sql as $$
    insert into nuncius.ring_notes (name, note)
    select name, note::jsonb from unnest(p_names, p_notes) n(name, note)
    on conflict (name) do update set note = excluded.note
$$;
