-- Ids that a subscriber sees: its own, dense and stable, from 0. In a topic with one partition they are the
-- offsets, and there are no rows here. Else a row is a run of consecutive ids and the entries they stand for,
-- written before the first of them is sent to the subscriber. Rows are added, hardly ever changed.
create table nuncius.sequences (
    subscription_id integer not null references nuncius.subscriptions on delete cascade,
    first_id bigint not null,
    partition_id integer not null,
    first_offset bigint not null,
    entries bigint not null check (entries > 0),
    primary key (subscription_id, first_id)
);
create index sequences_by_partition on nuncius.sequences (subscription_id, partition_id, first_offset);
