-- List the last activity of actors, the longest silent first, or of the inactive ones only.
select * from nuncius.list_actors($1) where not ($2 and is_active) order by last_active, kind, actor_id limit $3;
