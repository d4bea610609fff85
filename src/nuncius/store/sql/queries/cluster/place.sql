-- Assign the partitions of a topic that have no broker.
select nuncius.place_partitions($1, $2, $3);
