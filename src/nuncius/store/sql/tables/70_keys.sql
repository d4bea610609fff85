-- The key-value store of the ring: the keys that this node owns. Each begins with the hash that decides who owns
-- it, so that what goes to another node lies together. Keys, values and items are any bytes.

-- The value of a key is its highest row. A put adds a row and takes away the one before, so that a look never
-- meets the remains of older ones, whatever transaction keeps vacuum from them.
create table nuncius.key_values (
    hash bigint not null,
    key bytea not null,
    version bigint not null,
    value bytea not null,
    primary key (hash, key, version)
);

-- The lists there are; one from which everything was removed is still there.
create table nuncius.key_lists (
    hash bigint not null,
    key bytea not null,
    primary key (hash, key)
);

-- What is in them, in the order in which it was added, each item once.
create table nuncius.key_items (
    hash bigint not null,
    key bytea not null,
    position bigint not null,
    item bytea not null,
    digest bytea not null,              -- sha256 of the item, which may be too long for an index
    primary key (hash, key, position),
    unique (hash, key, digest)
);

-- What a node of the ring remembers of itself, each under a name: its ids and the ring it is in, a change of the
-- ring that is under way, and until when somebody may hold a lease of it.
create table nuncius.ring_notes (
    name varchar(255) primary key,
    note jsonb not null
);
