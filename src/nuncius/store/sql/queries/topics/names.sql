-- List the names of all topics, in the order of their creation.
select topic_name from nuncius.topics order by topic_id;
