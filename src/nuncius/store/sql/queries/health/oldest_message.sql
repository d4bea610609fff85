-- Return the queue with the oldest message, except queues of dead letters, and the message's age in seconds.
select queue_name, extract(epoch from now() - oldest)::float8 as seconds
from nuncius.oldest_in_queues(array(select queue_id from nuncius.queues order by 1 limit 10000))
where oldest is not null and queue_name not like 'dead/%' order by oldest limit 1
