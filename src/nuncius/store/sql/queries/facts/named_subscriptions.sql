-- Return subscriptions with the name of their topic.
select s.*, t.topic_name, t.topic_name || ' ' || s.subscriber_name as names
from nuncius.subscriptions s join nuncius.topics t using (topic_id)
