-- Return the offset of the first entry of a partition that arrived at a time or later.
select nuncius.offset_at($1, $2)
