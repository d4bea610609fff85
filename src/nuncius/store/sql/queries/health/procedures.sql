-- Return the procedures that took most time, if the server measures them.
select funcname, calls, total_time from pg_stat_user_functions
where schemaname = 'nuncius' order by total_time desc limit 20
