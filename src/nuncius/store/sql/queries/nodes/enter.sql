-- Hold the lock that every node holds as long as it lives, and notify the other nodes.
select pg_advisory_lock_shared(78007, 0), pg_notify('nuncius', 'n');
