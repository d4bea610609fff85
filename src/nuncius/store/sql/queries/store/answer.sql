-- Check that the store answers.
select 1;
