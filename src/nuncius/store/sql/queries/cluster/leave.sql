-- Record that a node has stopped.
select nuncius.leave_node($1, $2);
