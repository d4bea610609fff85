-- Return the queues of these names, or all, with the number of messages and the arrival of the oldest.
select q.queue_id, q.queue_name, count(m.queue_id),
    (date_part('epoch', min(m.time_of_arrival)) * 1000000)::bigint
from nuncius.find_queues(null, $1) q left join nuncius.messages m using (queue_id)
group by 1, 2 order by 2;
