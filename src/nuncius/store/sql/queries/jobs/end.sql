-- Record the result of a run.
update nuncius.pipeline_runs set state = $2, finished_at = now(), rows_read = $3, rows_written = $4,
    summary = $5::jsonb, error = $6
where run_id = $1;
