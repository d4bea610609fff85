-- Return the positions of subscriptions, by partition.
select partition, partition_id, position from nuncius.positions_of($1);
