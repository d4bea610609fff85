-- Return a summary: how many queues, topics, subscriptions, nodes there are, and how many need attention.
select * from nuncius.overview($1, $2)
