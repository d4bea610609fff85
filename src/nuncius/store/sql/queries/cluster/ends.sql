-- Return the first and next offsets of all partitions in a store.
select * from nuncius.ends_of_all();
