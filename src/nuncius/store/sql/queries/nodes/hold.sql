-- Take the lock on a node's number, unless another connection has it.
select pg_try_advisory_lock(78009, $1);
