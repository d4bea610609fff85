-- Publish as an SQL client.
select nuncius.publish($1, $2::text);
