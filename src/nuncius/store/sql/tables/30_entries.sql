-- Entries of topics: append-only, offsets dense from 0 within a partition, in commit order.
create table nuncius.entries (
    partition_id integer not null,
    publisher_id integer,
    entry_offset bigint not null,
    publisher_count bigint,
    time_of_arrival timestamptz not null default clock_timestamp(),
    key text,
    headers jsonb,
    body bytea not null,
    primary key (partition_id, entry_offset)
) with (
    autovacuum_vacuum_insert_scale_factor = 0.2,
    autovacuum_analyze_scale_factor = 0.2,
    autovacuum_vacuum_cost_delay = 0
);
