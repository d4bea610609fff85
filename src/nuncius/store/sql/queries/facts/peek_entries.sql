-- Return entries of a partition from an offset on, and the first bytes of each.
select * from nuncius.peek_entries($1, $2, $3, $4)
