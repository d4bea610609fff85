-- List the subscriptions of a topic, of a subscriber, or all, with their lag.
select topic_name, subscriber_name, holds_retention, created_at, lag, confirmed_at
from nuncius.list_subscriptions($1, $2);
