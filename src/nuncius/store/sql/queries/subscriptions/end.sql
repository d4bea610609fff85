-- End a subscription that lives as long as this node.
select nuncius.end_subscriptions(array(
    select subscription_id from nuncius.subscriptions join nuncius.topics using (topic_id)
    where topic_name = $1 and subscriber_name = $2), $3);
