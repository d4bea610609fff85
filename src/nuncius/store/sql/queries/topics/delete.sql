-- Delete a topic.
select nuncius.delete_topic($1);
