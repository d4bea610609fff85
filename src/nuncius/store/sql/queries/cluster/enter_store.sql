-- Register a broker's own store. Return its number.
select nuncius.enter_store($1, $2);
