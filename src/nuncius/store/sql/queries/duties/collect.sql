-- Apply retention in one bounded step. Return how many entries were removed.
select nuncius.collect();
