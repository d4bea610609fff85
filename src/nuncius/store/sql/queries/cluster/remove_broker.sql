-- Remove a broker, and give its partitions to others.
select nuncius.remove_broker($1, $2);
