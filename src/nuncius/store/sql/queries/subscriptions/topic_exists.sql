-- Return true if a topic exists.
select exists (select from nuncius.topics where topic_id = $1);
