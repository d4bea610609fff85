-- Count the nodes of this store.
select count(*) from pg_locks
where locktype = 'advisory' and classid = 78007 and granted
    and database = (select oid from pg_database where datname = current_database());
