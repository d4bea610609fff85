-- Register a node that has started. Return its number.
select nuncius.enter_node($1, $2, $3, $4, $5, $6);
