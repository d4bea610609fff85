-- Reading topics. Entries come back column by column: an array per column is cheaper than a row per entry, on
-- both sides of the socket.

-- Returns entries of partitions from given positions on, at most p_limits[i] entries and about p_bytes bytes
-- (but always at least one entry) per request.
--
-- A row per request that found entries: its ordinal, the offset of the first entry (later ones follow
-- without a gap), times in microseconds since 1970, keys and headers (null if no entry has any),
-- bodies. If retention has passed the position, the first offset is after it. For a partition that does
-- not exist the first offset is -2, without entries; for one whose entries are in another store -3.
create or replace function nuncius.fetch_many(
    p_partition_ids integer[], p_positions bigint[], p_limits integer[], p_bytes bigint
) returns table (
    request integer, first_offset bigint, times bigint[], keys text[], headers text[], bodies bytea[]
) language sql stable as $$
    select r.n::integer, coalesce(f.first, case when p.partition_id is null then -2 else -3 end),
        f.times, f.keys, f.headers, f.bodies
    from unnest(p_partition_ids, p_positions, p_limits) with ordinality r(id, position, most, n)
    left join nuncius.partitions p on p.partition_id = r.id
    left join lateral (
        select min(s.entry_offset) as first,
            array_agg((date_part('epoch', s.time_of_arrival) * 1000000)::bigint) as times,
            case when count(s.key) > 0 then array_agg(s.key) end as keys,
            case when count(s.headers) > 0 then array_agg(s.headers::text) end as headers,
            array_agg(s.body) as bodies
        from (
            select e.*, sum(octet_length(e.body)) over (order by e.entry_offset) - octet_length(e.body)
                as bytes_before
            from (
                select entry_offset, time_of_arrival, key, headers, body from nuncius.entries
                where partition_id = r.id and entry_offset >= greatest(r.position, p.first_offset)
                order by entry_offset limit r.most
            ) e
        ) s
        where s.bytes_before = 0 or s.bytes_before + octet_length(s.body) <= p_bytes
    ) f on true
    where p.partition_id is null or p.store_id <> 1 or f.first is not null
$$;

-- Returns entries of one partition from a position on, row by row, for interactive use.
create or replace function nuncius.fetch(
    topic text, partition integer default 1, from_offset bigint default 0, max_entries integer default 100
) returns table (
    entry_offset bigint, time_of_arrival timestamptz, key text, headers jsonb, publisher varchar, body bytea
) language sql stable as $$
    select e.entry_offset, e.time_of_arrival, e.key, e.headers, u.publisher_name, e.body
    from nuncius.topics t
    join nuncius.partitions p on p.topic_id = t.topic_id and p.partition = $2
    join nuncius.entries e on e.partition_id = p.partition_id
        and e.entry_offset >= greatest(from_offset, p.first_offset)
    left join nuncius.publishers u using (publisher_id)
    where t.topic_name = $1
    order by e.entry_offset limit max_entries
$$;
