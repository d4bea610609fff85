-- Change the retention of a topic.
select nuncius.set_retention($1, $2, $3, $4);
