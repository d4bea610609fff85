-- Record how many batches a sink has completed.
insert into nuncius.publisher_counts (publisher_id, kind, target_id, publisher_count)
select publisher_id, 3, 0, $2 from nuncius.ensure_publishers(array[$1]) on conflict do nothing;
