-- Return the ids and stores of queues.
select queue_id, queue_name, store_id from nuncius.queues where queue_name = any ($1);
