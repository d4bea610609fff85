-- Put rows into queues. Return for each run whether its queue exists and how many rows were stored before.
select codes, skipped
from nuncius.put_many($1, $2, $3, $4, null, $5, null, $6::smallint[], $7, $8, false, true, true);
