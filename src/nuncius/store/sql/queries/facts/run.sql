-- Return a run of a job.
select * from nuncius.facts_of_runs() where run_id = $1
