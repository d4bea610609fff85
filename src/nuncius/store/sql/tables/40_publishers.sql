-- A publisher numbers its messages; a message with a number that was seen is not stored again.
create table nuncius.publishers (
    publisher_id serial primary key,
    publisher_name varchar(255) not null unique,
    -- Names that clients make up for one connection are forgotten after a day of silence.
    lasting boolean not null default true,
    created_at timestamptz not null default now(),
    fingerprint bytea -- of the single request that this name stands for
);

-- The last count of a publisher for a topic (kind 1) or a queue (kind 2) is the highest row. Rows are
-- added, never updated, so that a transaction held open elsewhere cannot slow the look-up down;
-- the collector removes all but the highest.
create table nuncius.publisher_counts (
    publisher_id integer not null,
    kind smallint not null,
    target_id integer not null,
    publisher_count bigint not null,
    counted_at timestamptz not null default now(),
    primary key (publisher_id, kind, target_id, publisher_count)
);
