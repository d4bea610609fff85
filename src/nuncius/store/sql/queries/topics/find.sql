-- Return the topics of these names, or all, with the ids and stores of their partitions.
select * from nuncius.find_topics($1);
