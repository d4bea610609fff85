-- Return the names of queues by their ids.
select queue_id, queue_name from nuncius.find_queues($1, null)
