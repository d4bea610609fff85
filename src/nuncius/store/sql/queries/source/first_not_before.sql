-- Return the offset of the first entry of a range that is not before a time.
select entry_offset as found from nuncius.entries
where partition_id = $1 and entry_offset >= $2 and entry_offset < $3 and time_of_arrival >= $4
order by entry_offset limit 1;
