-- Make all entries of a topic unreadable.
select nuncius.purge_topic($1);
