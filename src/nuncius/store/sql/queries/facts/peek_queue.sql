-- Return a page of a queue's messages, and the first bytes of each.
select * from nuncius.peek_queue($1, $2, $3, $4, $5, $6)
