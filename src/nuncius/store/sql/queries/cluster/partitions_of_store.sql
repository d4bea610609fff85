-- Return from the common catalogue the partitions of a store.
select * from nuncius.partitions_of_store($1);
