-- Tribbles as the feeds of the ring and the pipeline see them: a topic of each store.

-- A name for this store that no other has, also when both are databases of one server.
create or replace function nuncius.store_identity() returns text language sql stable as $$
    select to_hex((select system_identifier from pg_control_system())) || '-' ||
        (select oid from pg_database where datname = current_database())
$$;

-- A name for a topic of this store that no other has, not even a later topic in its place. Where there is none the
-- last part is 0; what comes before the last part is the store.
create or replace function nuncius.topic_identity(p_topic text) returns text language sql stable as $$
    select nuncius.store_identity() || '-' ||
        coalesce((select topic_id from nuncius.topics where topic_name = p_topic), 0)
$$;

-- What was published to a topic from these offsets on, one a partition, 0 where there is none given. A row a
-- partition: where its entries begin, which is later than asked where retention has dropped some, and at most
-- p_limit of them.
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
