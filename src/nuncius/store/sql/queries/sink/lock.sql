-- Lock partitions (class 78001) or queues (78002) in order, for several calls in one transaction.
select nuncius.take_locks($1, $2, $2, true);
