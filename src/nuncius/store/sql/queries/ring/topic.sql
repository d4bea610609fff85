-- Return the unique identity of a topic.
select nuncius.topic_identity($1);
