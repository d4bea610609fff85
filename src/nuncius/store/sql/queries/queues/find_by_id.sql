-- Return the queue of an id.
select * from nuncius.get_queue_name($1);
