-- Record in the common store the first and next offsets of partitions in another store.
select nuncius.note_ends($1, $2, $3);
