-- Confirm positions as a member: all or none.
select code, wrong from nuncius.confirm_as_member($1, $2, $3, $4);
