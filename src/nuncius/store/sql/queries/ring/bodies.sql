-- Return the unique identity of a topic, and entries from these offsets on.
select * from nuncius.topic_identity($1) left join nuncius.bodies_since($1, $2, $3) on true;
