-- Return the ids of queues with a text in their name.
select queue_id from nuncius.queues
where $1 = '' or position(lower($1) in lower(queue_name)) > 0 order by queue_name
