-- Assign the partitions of dead brokers to others.
select nuncius.reassign_partitions($1);
