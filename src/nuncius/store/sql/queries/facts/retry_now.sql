-- Redeliver now the messages of a queue that wait for their retry.
select nuncius.retry_now($1)
