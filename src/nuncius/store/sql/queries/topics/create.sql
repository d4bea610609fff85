-- Create a topic, which must not exist.
select nuncius.create_topic($1, $2);
