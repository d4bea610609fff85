"""Describes a database's schema as plain lines, so that two of them can be compared."""

from nuncius.store.driver import Connection

_QUERIES = {
    "column": """
        select format('%s.%s %s%s%s%s storage=%s compression=%s', c.relname, a.attname,
            format_type(a.atttypid, a.atttypmod), case when a.attnotnull then ' not null' end,
            ' default ' || pg_get_expr(d.adbin, d.adrelid),
            ' identity ' || nullif(a.attidentity::text, '') ||
                ' generated ' || nullif(a.attgenerated::text, ''),
            a.attstorage, a.attcompression)
            || coalesce(' collate ' || nullif(a.attcollation, t.typcollation)::regcollation, '')
            || ' statistics=' || coalesce(a.attstattarget, -1)
        from pg_attribute a
        join pg_class c on c.oid = a.attrelid
        join pg_type t on t.oid = a.atttypid
        left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
        where c.relnamespace = 'nuncius'::regnamespace and a.attnum > 0 and not a.attisdropped
            and c.relkind in ('r', 'p', 'v', 'm', 'c')""",
    "relation": """
        select format('%s kind=%s persistence=%s options=%s toast=%s partition of %s %s by %s',
            c.relname, c.relkind, c.relpersistence, c.reloptions, t.reloptions,
            i.inhparent::regclass, pg_get_expr(c.relpartbound, c.oid), pg_get_partkeydef(c.oid))
        from pg_class c
        left join pg_class t on t.oid = c.reltoastrelid
        left join pg_inherits i on i.inhrelid = c.oid
        where c.relnamespace = 'nuncius'::regnamespace and c.relkind <> 'i'""",
    "sequence": """
        select format('%s %s start %s by %s from %s to %s cache %s cycle %s', s.seqrelid::regclass,
            s.seqtypid::regtype, s.seqstart, s.seqincrement, s.seqmin, s.seqmax, s.seqcache,
            s.seqcycle)
        from pg_sequence s join pg_class c on c.oid = s.seqrelid
        where c.relnamespace = 'nuncius'::regnamespace""",
    "constraint": """
        select format('%s on %s: %s', conname, conrelid::regclass, pg_get_constraintdef(oid))
        from pg_constraint where connamespace = 'nuncius'::regnamespace""",
    "index": "select indexdef from pg_indexes where schemaname = 'nuncius'",
    "view": "select format('%s: %s', viewname, definition) from pg_views where schemaname = 'nuncius'",
    "trigger": """
        select pg_get_triggerdef(g.oid) from pg_trigger g join pg_class c on c.oid = g.tgrelid
        where c.relnamespace = 'nuncius'::regnamespace and not g.tgisinternal""",
    "function": """
        select case when prokind = 'a' then oid::regprocedure::text
            else pg_get_functiondef(oid) end
        from pg_proc where pronamespace = 'nuncius'::regnamespace""",
    "type": """
        select format('%s %s %s %s', t.typname, t.typtype, format_type(t.typbasetype, t.typtypmod),
            (select array_agg(e.enumlabel order by e.enumsortorder) from pg_enum e
             where e.enumtypid = t.oid))
        from pg_type t where t.typnamespace = 'nuncius'::regnamespace""",
    "grant": """
        select format('%s %s', oid::regprocedure, proacl) from pg_proc
        where pronamespace = 'nuncius'::regnamespace
        union all
        select format('%s %s', relname, relacl) from pg_class
        where relnamespace = 'nuncius'::regnamespace""",
    "comment": """
        select format('%s: %s', pg_describe_object(classoid, objoid, objsubid), description)
        from pg_description
        where pg_describe_object(classoid, objoid, objsubid) like '%nuncius%'""",
}


async def describe(connection: Connection) -> list[str]:
    """Everything in schema `nuncius` that a reader of the schema could ask about, sorted."""
    await connection.execute("set search_path = pg_catalog")
    lines = []
    for kind, query in _QUERIES.items():
        lines += [f"{kind} {row[0]}" for row in await connection.fetch(query)]
    return sorted(lines)
