-- Wait for operations that the last owner had in progress when it died.
select pg_advisory_lock(78013, 1), pg_advisory_unlock(78013, 1);
