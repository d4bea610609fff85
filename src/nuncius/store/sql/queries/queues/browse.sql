-- List messages of queues, oldest first, up to a number of bytes, and at least one.
select message_id, queue_id, sender_id, receiver_id, context, priority,
    (date_part('epoch', time_of_arrival) * 1000000)::bigint, message, headers::text
from (
    select *, sum(octet_length(message)) over (order by message_id) - octet_length(message) as bytes_before
    from nuncius.browse_queues(array[$1::integer], $2, $3)
) m
where bytes_before < $4 order by message_id;
