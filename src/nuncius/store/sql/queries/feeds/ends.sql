-- Return the next offset to be published, by partition.
select partition, nuncius.next_offset(partition_id) from nuncius.partitions where topic_id = $1;
