-- List the members of a group and their partitions.
select member_id, member_name, joined_at, last_seen, partitions from nuncius.list_members($1, $2);
