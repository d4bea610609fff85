-- Return the failed entries of a subscription, their attempts, and the seconds to the next one.
select p.partition, f.entry_offset, f.attempts,
    greatest(0, date_part('epoch', f.due_at - clock_timestamp()))::float8
from nuncius.failures f join nuncius.partitions p using (partition_id)
where f.subscription_id = $1;
