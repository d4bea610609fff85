-- Confirm everything before these positions.
select nuncius.confirm_many($1, $2, $3);
