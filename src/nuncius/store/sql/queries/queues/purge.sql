-- Remove all messages of a queue. Return how many.
select nuncius.purge_queues(array[$1::integer]);
