-- Record heartbeats of members. Return those that exist.
select nuncius.note_members($1, $2);
