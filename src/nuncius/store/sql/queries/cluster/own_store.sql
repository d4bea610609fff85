-- Take the lock of the broker that uses its own store, unless another broker has it.
select pg_try_advisory_lock(78014, 0);
