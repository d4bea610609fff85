-- Return the queue of a name.
select * from nuncius.get_queue_id($1);
