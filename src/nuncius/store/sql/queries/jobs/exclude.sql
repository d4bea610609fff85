-- Take the lock that excludes other runs of a job, unless another run has it.
select pg_try_advisory_lock($1, 1);
