-- Return the subscriptions of a topic after a subscriber's name.
select topic_name, subscriber_name, holds_retention, created_at, lag, confirmed_at
from nuncius.list_subscriptions($1) where subscriber_name > $2 order by subscriber_name limit $3
