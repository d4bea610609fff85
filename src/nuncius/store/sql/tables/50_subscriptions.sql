-- A subscription is a subscriber's durable place in a topic.
create table nuncius.subscriptions (
    subscription_id serial primary key,
    topic_id integer not null,
    subscriber_name varchar(255) not null,
    -- Whether retention by time or size waits for this subscriber; retention "subscribers" always does.
    holds_retention boolean not null default false,
    created_at timestamptz not null default now(),
    unique (topic_id, subscriber_name)
);

-- Everything below the highest position is confirmed; a partition without a row is read from its start.
-- Rows are added, never updated, as in publisher_counts and for the same reason.
create table nuncius.positions (
    subscription_id integer not null,
    partition_id integer not null,
    position bigint not null,
    confirmed_at timestamptz not null default now(),
    primary key (subscription_id, partition_id, position)
);
