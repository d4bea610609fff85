-- Take the same lock together with other nodes that keep no keys in memory, unless an owner has it.
select pg_try_advisory_lock_shared(78013, 0);
