-- Return messages of a queue by their ids, with their bodies.
select message_id, queue_id, sender_id, receiver_id, context, priority, time_of_arrival, headers::text, message
from nuncius.find_messages($1, $2)
