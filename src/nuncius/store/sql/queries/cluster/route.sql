-- Return the partitions of a topic in order, with the store and the broker of each.
select * from nuncius.route_topic($1);
