-- List the queues that have messages for a client.
select * from nuncius.get_active_queues($1);
