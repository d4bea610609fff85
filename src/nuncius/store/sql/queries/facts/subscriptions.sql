-- Return subscriptions by their ids.
select * from nuncius.facts_of_subscriptions($1)
