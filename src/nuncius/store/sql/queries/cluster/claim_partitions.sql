-- Record the partitions of entries with an identity, or return those that were recorded first.
select nuncius.claim_many($1, $2, $3, $4);
