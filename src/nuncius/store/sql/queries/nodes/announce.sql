-- Notify other nodes of topics and queues with new messages.
select nuncius.announce($1, $2);
