-- Return, by partition, the offset below which entries may have been delivered before.
select p.partition, coalesce(d.delivered_to, 0)
from nuncius.subscriptions s
join nuncius.partitions p using (topic_id)
left join lateral (
    select max(d.delivered_to) as delivered_to from nuncius.deliveries d
    where d.subscription_id = s.subscription_id and d.partition_id = p.partition_id
) d on true
where s.subscription_id = $1;
