-- Take the lock of the process that owns a store's keys, unless another process has it.
select pg_try_advisory_lock(78013, 0);
