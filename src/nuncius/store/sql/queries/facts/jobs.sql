-- Return the last run of each job, and how many runs it had.
select distinct on (job_name) r.*, count(*) over (partition by job_name) as runs,
    count(*) filter (where state = 'failed') over (partition by job_name) as failed
from nuncius.facts_of_runs() r order by job_name, run_id desc
