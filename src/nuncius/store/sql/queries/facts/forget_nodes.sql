-- Remove dead nodes that have no partitions and no store of their own.
delete from nuncius.nodes n where node_id = any ($1) and store_id = 1
    and coalesce(last_heard < clock_timestamp() - make_interval(secs => $2), true)
    and not exists (select from nuncius.assignments a where a.broker_id = n.broker_id)
returning node_id
