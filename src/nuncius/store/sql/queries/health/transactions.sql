-- Return the longest open transactions, with their sessions.
select * from nuncius.open_transactions()
