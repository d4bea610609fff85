-- Return a note of the ring of keys, by its name.
select note::text from nuncius.ring_notes where name = $1
