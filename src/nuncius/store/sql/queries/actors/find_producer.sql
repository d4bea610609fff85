-- Return the topic of a producer.
select topic_name from nuncius.find_producer($1);
