-- Return the partitions that have a broker or are in another store.
select t.topic_name, p.partition, p.store_id, a.broker_id
from nuncius.partitions p join nuncius.topics t using (topic_id)
left join nuncius.assignments a on a.partition_id = p.partition_id
where a.broker_id is not null or p.store_id <> 1
order by t.topic_name, p.partition limit $1
