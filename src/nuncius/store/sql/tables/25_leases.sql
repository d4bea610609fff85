-- Messages that were handed to a consumer who has to acknowledge them. They are out of their queue and not
-- gone yet: acknowledged, the lease is deleted; failed, it waits a while and the message goes back.
create table nuncius.leases (
    lease_id bigint primary key,        -- the id that the message had in its queue
    origin bigint not null,             -- the id that it had at first; the same over all attempts
    queue_id integer not null,
    sender_id integer not null,
    receiver_id integer not null,
    context integer not null,
    priority smallint not null,
    time_of_arrival timestamptz not null,
    message bytea not null,
    headers jsonb,
    attempts smallint not null,         -- deliveries so far, this one included
    holder integer not null,            -- the node that delivers it; 0: it waits for its next attempt
    due_at timestamptz,                 -- until then
    last_failure timestamptz,
    reason text
) with (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 20000,
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 50000,
    autovacuum_vacuum_cost_delay = 0
);
create index leases_by_holder on nuncius.leases (holder, due_at);

-- What is known of messages that went back into their queue: they have a new id there, behind their equals.
create table nuncius.returned (
    message_id bigint primary key,
    queue_id integer not null,
    receiver_id integer not null,
    priority smallint not null,
    attempts smallint not null,
    origin bigint not null,
    last_failure timestamptz,
    reason text
);

-- Nodes that hold something have a number, and a lock on it as long as they live.
create sequence nuncius.holders as integer;
