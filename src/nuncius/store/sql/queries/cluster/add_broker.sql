-- Register a node as a broker. Return its number.
select nuncius.add_broker($1, $2);
