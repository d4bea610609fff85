-- Return the subscription with the highest lag.
select topic_name, subscriber_name from nuncius.subscriptions join nuncius.topics using (topic_id)
order by nuncius.lag_of(subscription_id) desc limit 1
