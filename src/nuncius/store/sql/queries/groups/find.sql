-- Return the topic and the subscriber of a member.
select topic_name, subscriber_name from nuncius.group_of($1);
