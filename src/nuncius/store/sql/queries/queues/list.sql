-- List all queues.
select * from nuncius.list_queues();
