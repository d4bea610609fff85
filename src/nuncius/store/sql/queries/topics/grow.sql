-- Add partitions to a topic until it has so many.
select nuncius.grow_topic($1, $2);
