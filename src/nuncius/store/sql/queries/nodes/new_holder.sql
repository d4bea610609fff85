-- Return a new number for a node, under which it holds leases and subscriptions.
select nextval(pg_get_serial_sequence('nuncius.holders', 'holder'))::integer;
