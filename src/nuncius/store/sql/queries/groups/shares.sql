-- Return the partitions and positions of a member that asks for more entries.
select topic_name, generation, partition, position, unread from nuncius.shares_of($1);
