-- Return the sizes and the dead rows of the store's tables, the largest first.
select * from nuncius.facts_of_tables()
