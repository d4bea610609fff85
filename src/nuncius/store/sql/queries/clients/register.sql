-- Register a client, whose name must be new.
select nuncius.request_id($1, $2);
