-- Subscribe from the latest entry on. Return the id of the last entry that the subscriber has.
select created, last_id from nuncius.subscribe_in_sequence($1, $2);
