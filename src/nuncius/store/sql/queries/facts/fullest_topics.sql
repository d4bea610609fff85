-- Return the fullest topics, and a sum of all others.
select * from nuncius.fullest_topics($1)
