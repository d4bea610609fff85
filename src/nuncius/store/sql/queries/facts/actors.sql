-- Return a page of producers, consumers and brokers, with their topics, and how many there are.
select a.kind, a.actor_id, a.last_active, a.is_active, coalesce(p.topic_name, c.topic_name), c.subscription_id,
    count(*) over ()
from nuncius.list_actors($1) a
left join lateral nuncius.find_producer(a.actor_id) p on a.kind = 'producer'
left join lateral nuncius.find_consumer(a.actor_id) c on a.kind = 'consumer'
where not ($2 and a.is_active)
    and ($3 = '' or position(lower($3) in lower(coalesce(p.topic_name, c.topic_name))) > 0)
order by {sort} {direction}, a.kind, a.actor_id limit $4 offset $5
