-- Return when the oldest message of each of these queues arrived.
select * from nuncius.oldest_in_queues($1)
