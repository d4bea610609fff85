-- Count the messages that a consumer has not read yet.
select coalesce(sum(next - position), 0)::bigint from nuncius.positions_of(array[$1::integer]);
