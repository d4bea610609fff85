-- The key-value store of the ring: the keys that this node owns. Each row begins with the hash that decides its
-- owner, so that keys that move to another node are stored together. Keys, values and items are any bytes.

-- The value of a key is its highest row. A put adds a row and deletes the one before, so that a look-up never
-- reads dead older rows, even while a long transaction keeps vacuum from removing them.
create table nuncius.key_values (
    hash bigint not null,
    key bytea not null,
    version bigint not null,
    value bytea not null,
    primary key (hash, key, version)
);

-- The lists. A list from which all items were removed still exists.
create table nuncius.key_lists (
    hash bigint not null,
    key bytea not null,
    primary key (hash, key)
);

-- Items of lists, in the order of adding, each item once.
create table nuncius.key_items (
    hash bigint not null,
    key bytea not null,
    position bigint not null,
    item bytea not null,
    digest bytea not null,              -- sha256 of the item, which may be too long for an index
    primary key (hash, key, position),
    unique (hash, key, digest)
);

-- Notes of a node of the ring about itself, each under a name: its ids and its ring, a change of the ring that is
-- under way, and until when other nodes may hold leases of its keys.
create table nuncius.ring_notes (
    name varchar(255) primary key,
    note jsonb not null
);
