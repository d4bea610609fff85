-- Fix the plans of a connection that reads entries, so that they do not depend on the last ANALYZE.
select set_config('application_name', 'nuncius source', false), set_config('jit', 'off', false),
    set_config('enable_seqscan', 'off', false), set_config('enable_bitmapscan', 'off', false),
    set_config('enable_sort', 'off', false), set_config('max_parallel_workers_per_gather', '0', false);
