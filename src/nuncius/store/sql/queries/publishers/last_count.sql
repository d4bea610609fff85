-- Return the last count of a publisher in a topic or queue.
select nuncius.last_count($1, $2, $3);
