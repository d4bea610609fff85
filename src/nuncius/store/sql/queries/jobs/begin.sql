-- Record the start of a run. Return its number.
insert into nuncius.pipeline_runs (job_name, settings) values ($1, $2::jsonb) returning run_id;
