-- Return the number of batches that a sink has completed. It counts them as kind 3, without a target.
select max(c.publisher_count) from nuncius.publishers p join nuncius.publisher_counts c using (publisher_id)
where p.publisher_name = $1 and c.kind = 3;
