-- Return the names of queues after a name.
select queue_name from nuncius.queues where queue_name > $1 order by 1 limit $2
