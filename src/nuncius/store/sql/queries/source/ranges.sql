-- Return the partitions of topics, with the store and the readable range of each.
select * from nuncius.readable_ranges($1);
