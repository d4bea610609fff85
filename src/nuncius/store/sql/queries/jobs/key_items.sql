-- Read the items of lists whose keys match a pattern, for a range of hashes.
select key, item from nuncius.key_items where hash between {first} and {last} and key like '\x{pattern}'::bytea;
