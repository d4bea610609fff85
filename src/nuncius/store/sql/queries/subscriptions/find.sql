-- Find the subscription of a subscriber to a topic.
select subscription_id
from nuncius.subscriptions join nuncius.topics using (topic_id)
where topic_name = $1 and subscriber_name = $2;
