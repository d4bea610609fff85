-- Add a member to the group of a subscription. Null: no such subscription.
select nuncius.join_group($1, $2, $3, $4, $5);
