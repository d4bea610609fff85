-- A subscription is a subscriber's durable place in a topic.
create table nuncius.subscriptions (
    subscription_id serial primary key,
    topic_id integer not null,
    subscriber_name varchar(255) not null,
    -- Whether retention by time or size waits for this subscriber; retention "subscribers" always does.
    holds_retention boolean not null default false,
    -- The node by whose connection it lives; null: it is durable.
    holder integer,
    created_at timestamptz not null default now(),
    -- The node at which it is fed, where that must be one, and the node that wants it next.
    feeder integer,
    heir integer,
    unique (topic_id, subscriber_name)
);

-- Everything below the highest position is confirmed; a partition without a row is read from its start.
-- Rows are added, never updated, as in publisher_counts and for the same reason.
create table nuncius.positions (
    subscription_id integer not null,
    partition_id integer not null,
    position bigint not null,
    confirmed_at timestamptz not null default now(),
    mover bigint, -- the number of the call that moved a consumer there, known to its caller
    primary key (subscription_id, partition_id, position)
);

-- Everything below the highest row was handed to the subscriber, confirmed or not. Kept for subscribers who
-- acknowledge, so that after a crash what comes again is marked as such.
create table nuncius.deliveries (
    subscription_id integer not null,
    partition_id integer not null,
    delivered_to bigint not null,
    primary key (subscription_id, partition_id, delivered_to)
);

-- Entries that a subscriber could not take: its position has passed them, they come again when they are due.
create table nuncius.failures (
    subscription_id integer not null,
    partition_id integer not null,
    entry_offset bigint not null,
    attempts integer not null,
    last_failure timestamptz not null default clock_timestamp(),
    due_at timestamptz not null,
    reason text,
    primary key (subscription_id, partition_id, entry_offset)
);
