-- Find or create the publisher of a name.
select publisher_id from nuncius.ensure_publishers($1, $2);
