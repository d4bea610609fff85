-- Return settings that decide about durability and speed; sizes in bytes, too.
select name, setting, current_setting(name) as shown,
    case when vartype = 'integer' then setting::bigint
        * case unit when '8kB' then 8192 when 'MB' then 1048576 else 1 end end as amount
from pg_settings
where name in ('fsync', 'full_page_writes', 'synchronous_commit', 'autovacuum', 'shared_buffers', 'max_wal_size')
order by name
