-- Hold the lock of a run. A run in the state `running` whose lock is free was interrupted.
select pg_advisory_lock(78011, ($1::bigint % 2147483647)::integer);
