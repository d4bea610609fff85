-- Return topics and their partitions by the ids of the topics.
select * from nuncius.facts_of_topics($1)
