-- Return the number of keys, counted up to a bound, and about how many items their lists have.
select (select count(*) from (select from nuncius.key_values limit $1) v)
        + (select count(*) from (select from nuncius.key_lists limit $1) l),
    (select coalesce(nullif(pg_stat_get_live_tuples(oid), 0), greatest(reltuples, 0)::bigint)
    from pg_class where oid = 'nuncius.key_items'::regclass)
