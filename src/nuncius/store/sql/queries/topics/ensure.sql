-- Create a topic unless it exists.
select nuncius.ensure_topic($1, $2);
