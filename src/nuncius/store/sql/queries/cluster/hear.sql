-- Record a heartbeat of a node.
select nuncius.hear_node($1);
