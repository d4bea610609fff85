-- Read a topic as an SQL client.
select nuncius.as_text(body) from nuncius.fetch($1, 1, 0, 100);
