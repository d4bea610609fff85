-- Return the next offset and the number of entries of each partition of a topic.
select partition, next, held from nuncius.fullness($1);
