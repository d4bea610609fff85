-- Record when actors were last active.
select nuncius.note_activity($1, $2, $3);
