-- Remove superseded positions, counts and other rows that have no use any more.
select nuncius.tidy();
