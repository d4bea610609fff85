-- Register a consumer that reads from the topic's beginning.
select nuncius.register_consumer($1);
