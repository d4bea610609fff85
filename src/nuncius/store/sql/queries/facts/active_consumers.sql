-- Return which of these consumers with a number are active.
select actor_id from nuncius.list_actors($1)
where kind = 'consumer' and is_active and actor_id = any ($2)
