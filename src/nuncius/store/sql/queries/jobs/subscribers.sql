-- Return the positions of all subscribers of these topics, or of all topics, with the number of failed entries.
with chosen as (
    select subscription_id from nuncius.subscriptions join nuncius.topics using (topic_id)
    where $1::text[] is null or topic_name = any ($1)
)
select w.partition_id, s.subscriber_name, w.position, (
        select count(*) from nuncius.failures f
        where f.subscription_id = w.subscription_id and f.partition_id = w.partition_id
    ) as failing
from nuncius.positions_of(array(select subscription_id from chosen)) w
join nuncius.subscriptions s using (subscription_id);
