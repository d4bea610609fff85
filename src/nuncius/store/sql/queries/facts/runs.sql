-- Return a page of the runs of jobs, and how many there are.
select r.*, count(*) over () from nuncius.facts_of_runs() r
where $1 = '' or position(lower($1) in lower(job_name)) > 0
order by {sort} {direction}, run_id desc limit $2 offset $3
