-- Delete a queue.
select nuncius.delete_queue($1);
