-- List the partitions that are not in the common store.
select partition_id, store_id from nuncius.partitions_elsewhere();
