-- Return the names of topics after a name.
select topic_name from nuncius.topics where topic_name > $1 order by 1 limit $2
