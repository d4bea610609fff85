-- Return queues by their ids, counted up to a bound.
select * from nuncius.facts_of_queues($1, $2)
