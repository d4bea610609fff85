-- Publish rows to topics. Return for each run its first offset and how many rows were stored before.
select bases, skipped from nuncius.publish_many($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, true, true);
