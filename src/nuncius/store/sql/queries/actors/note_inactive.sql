-- Mark and return the actors that became inactive since the last check.
select kind, actor_id from nuncius.note_inactive($1);
