-- Return the server's version and clock, the size of the database, its connections, and its oldest prepared transaction.
select current_setting('server_version') as version, now() as now, pg_database_size(current_database()) as bytes,
    (select count(*) from pg_stat_activity where backend_type = 'client backend') as connections,
    current_setting('max_connections')::int as max_connections, p.gid as prepared, p.prepared as prepared_at
from (select) one left join lateral (
    select gid, prepared from pg_prepared_xacts where database = current_database() order by prepared limit 1
) p on true
