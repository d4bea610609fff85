-- Return the topic and the subscription of a consumer.
select topic_name, subscription_id from nuncius.find_consumer($1);
