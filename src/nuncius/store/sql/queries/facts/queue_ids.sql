-- Return the ids of all queues.
select queue_id from nuncius.queues order by queue_id
