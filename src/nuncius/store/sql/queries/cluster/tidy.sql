-- Remove old rows of the cluster's tables.
select nuncius.tidy_cluster();
