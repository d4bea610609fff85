-- Remove the activity of actors that no longer exist.
select nuncius.tidy_actors();
