-- Count the inactive actors.
select count(*) from nuncius.list_actors($1) where not is_active;
