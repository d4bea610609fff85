-- Register a producer. Create its topic if it does not exist.
select nuncius.register_producer($1);
