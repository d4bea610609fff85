-- End memberships.
select nuncius.leave_group($1);
