-- List the last runs of a job, or of all jobs, the latest first.
select * from nuncius.facts_of_runs(null) where job_name = $1 or $1 is null limit $2;
