-- Tribbles as the feeds of the ring and the pipeline see them: a topic of each store.

-- Returns a unique name for this store, unique also among databases of one server.
create or replace function nuncius.store_identity() returns text language sql stable as $$
    select to_hex((select system_identifier from pg_control_system())) || '-' ||
        (select oid from pg_database where datname = current_database())
$$;

-- Returns a unique name for a topic of this store, different also from that of a later topic of the same name. Without
-- such a topic the last part is 0; the part before the last one is the store.
create or replace function nuncius.topic_identity(p_topic text) returns text language sql stable as $$
    select nuncius.store_identity() || '-' ||
        coalesce((select topic_id from nuncius.topics where topic_name = p_topic), 0)
$$;

-- Returns the entries of a topic from these offsets on, one per partition, 0 if none is given. A row per
-- partition: the offset of its first entry, which is later than requested if retention has dropped some, and at
-- most p_limit entries.
create or replace function nuncius.bodies_since(p_topic text, p_offsets bigint[], p_limit integer)
returns table (start bigint, bodies bytea[]) language sql stable as $$
    select f.first, array(
        select e.body from nuncius.entries e
        where e.partition_id = p.partition_id and e.entry_offset >= f.first
        order by e.entry_offset limit p_limit)
    from nuncius.topics t
    join nuncius.partitions p using (topic_id),
    greatest(coalesce(p_offsets[p.partition], 0), p.first_offset) f(first)
    where t.topic_name = p_topic
    order by p.partition
$$;
