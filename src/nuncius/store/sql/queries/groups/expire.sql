-- Remove members that are gone.
select nuncius.expire_members();
