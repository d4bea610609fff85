-- Copy the partitions of a store from the common catalogue into that store.
select nuncius.mirror_partitions($1, $2, $3, $4, $5, $6, $7, $8, $9, $10);
