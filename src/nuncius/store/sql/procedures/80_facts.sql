-- Facts for consoles and command lines. Each answer is bounded: its cost depends on the rows shown, not on the rows
-- stored. A count that would have to read everything stops at a bound.

-- Returns the lines of a queue: one for each receiver and priority with messages, and its oldest message. Goes from
-- one line to the next by the index, whatever their lengths; sees the first p_most of them.
create or replace function nuncius.lines_of_queue(p_queue integer, p_most integer default 200)
returns table (receiver_id integer, priority smallint, message_id bigint, oldest timestamptz)
language sql stable set enable_seqscan = off set enable_bitmapscan = off as $$
    with recursive line as (
        (select m.receiver_id, m.priority, m.message_id, m.time_of_arrival, 1 as n from nuncius.messages m
        where m.queue_id = p_queue order by m.receiver_id, m.priority, m.message_id limit 1)
        union all
        select f.*, l.n + 1 from line l cross join lateral (
            select m.receiver_id, m.priority, m.message_id, m.time_of_arrival from nuncius.messages m
            where m.queue_id = p_queue and (m.receiver_id, m.priority) > (l.receiver_id, l.priority)
            order by m.receiver_id, m.priority, m.message_id limit 1) f
        where l.n < p_most
    )
    select l.receiver_id, l.priority, l.message_id, l.time_of_arrival from line l
$$;

-- Returns the contents of queues. `depths` are of priorities 1 to 10; a line is counted up to p_bound, and `is_exact`
-- says whether that was enough. `leased` are messages in flight, `waiting` those that await redelivery.
create or replace function nuncius.facts_of_queues(p_queues integer[], p_bound integer default 2000)
returns table (
    queue_id integer, queue_name varchar, depths bigint[], is_exact boolean, oldest timestamptz, receivers bigint,
    leased bigint, waiting bigint
) language sql stable set enable_seqscan = off set enable_bitmapscan = off as $$
    with lines as (
        select q.id, l.priority, l.receiver_id, l.oldest, c.depth, count(*) over (partition by q.id) as known
        from unnest(p_queues) q(id), lateral nuncius.lines_of_queue(q.id) l, lateral (
            select count(*) as depth from (
                select from nuncius.messages m
                where m.queue_id = q.id and m.receiver_id = l.receiver_id and m.priority = l.priority
                limit p_bound + 1) m) c
    ), held as (
        select l.queue_id, count(*) filter (where l.holder <> 0) as leased,
            count(*) filter (where l.holder = 0) as waiting
        from (select l.queue_id, l.holder from nuncius.leases l limit 100000) l group by 1
    )
    select q.queue_id, q.queue_name,
        array(select coalesce(sum(least(l.depth, p_bound)) filter (where l.id is not null), 0)::bigint
            from generate_series(1, 10) p
            left join lines l on l.id = q.queue_id and l.priority = p group by p order by p),
        coalesce((select max(l.depth) <= p_bound and max(l.known) < 200 from lines l where l.id = q.queue_id), true),
        (select min(l.oldest) from lines l where l.id = q.queue_id),
        (select count(distinct l.receiver_id) from lines l where l.id = q.queue_id and l.receiver_id <> 0),
        coalesce(h.leased, 0), coalesce(h.waiting, 0)
    from unnest(p_queues) with ordinality o(id, n)
    join nuncius.queues q on q.queue_id = o.id
    left join held h on h.queue_id = q.queue_id
    order by o.n
$$;

-- Returns the depth of each queue. Reads the whole index: call it seldom.
create or replace function nuncius.depths()
returns table (queue_id integer, depth bigint) language sql stable as $$
    select m.queue_id, count(*) from nuncius.messages m group by 1
$$;

-- A page of a queue's messages without taking them: in reading order (highest priority first) or by age, from the
-- front or from the back. Of each message its size and its first p_preview bytes.
create or replace function nuncius.peek_queue(
    p_queue integer, p_by_age boolean, p_backwards boolean, p_offset integer, p_limit integer, p_preview integer
) returns table (
    message_id bigint, sender_id integer, sender varchar, receiver_id integer, receiver varchar, context integer,
    priority smallint, time_of_arrival timestamptz, headers text, size integer, preview bytea
) language sql stable set enable_seqscan = off set enable_bitmapscan = off as $$
    with spots as (
        select f.* from nuncius.lines_of_queue(p_queue) l, lateral (
            (select m.receiver_id, m.priority, m.message_id from nuncius.messages m
            where not p_backwards and m.queue_id = p_queue and m.receiver_id = l.receiver_id
                and m.priority = l.priority
            order by m.message_id limit p_offset + p_limit)
            union all
            (select m.receiver_id, m.priority, m.message_id from nuncius.messages m
            where p_backwards and m.queue_id = p_queue and m.receiver_id = l.receiver_id
                and m.priority = l.priority
            order by m.message_id desc limit p_offset + p_limit)) f
    ), page as (
        select s.*, row_number() over (order by
            case when p_by_age then 0 when p_backwards then s.priority else -s.priority end,
            case when p_backwards then -s.message_id else s.message_id end) as n
        from spots s
    )
    select m.message_id, m.sender_id, f.client_name, m.receiver_id, t.client_name, m.context, m.priority,
        m.time_of_arrival, m.headers::text, octet_length(m.message), substr(m.message, 1, p_preview)
    from page p
    join nuncius.messages m on m.queue_id = p_queue and m.receiver_id = p.receiver_id and m.priority = p.priority
        and m.message_id = p.message_id
    left join nuncius.clients f on f.client_id = m.sender_id
    left join nuncius.clients t on t.client_id = m.receiver_id
    where p.n > p_offset and p.n <= p_offset + p_limit
    order by p.n
$$;

-- Messages of a queue by their ids, whole.
create or replace function nuncius.find_messages(p_queue integer, p_ids bigint[])
returns setof nuncius.messages
language sql stable set enable_seqscan = off set enable_bitmapscan = off as $$
    select m.* from nuncius.lines_of_queue(p_queue, 100000) l, unnest(p_ids) i
    join lateral (
        select * from nuncius.messages m
        where m.queue_id = p_queue and m.receiver_id = l.receiver_id and m.priority = l.priority
            and m.message_id = i) m on true
$$;

-- Moves messages from one queue to another, behind their equals, or removes them if there is no other. With
-- p_revive the headers that dead letters got are dropped. Returns how many moved; null: no such queue.
create or replace function nuncius.move_messages(
    p_source integer, p_ids bigint[], p_target integer, p_revive boolean default false
) returns bigint language plpgsql set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    v_moved bigint;
begin
    if p_target is not null then
        perform nuncius.take_locks(78002, array[p_target], array[p_target], true);
    end if;
    perform nuncius.take_locks(78003, array[p_source], array[p_source], true);
    if exists (select from unnest(array[p_source, p_target]) q where q is not null
        and not exists (select from nuncius.queues where queue_id = q)) then
        return null;
    end if;
    with gone as (
        delete from nuncius.messages m using nuncius.find_messages(p_source, p_ids) f
        where m.queue_id = p_source and m.receiver_id = f.receiver_id and m.priority = f.priority
            and m.message_id = f.message_id
        returning m.*
    ), moved as (
        insert into nuncius.messages (queue_id, sender_id, receiver_id, context, priority, headers, message)
        select p_target, g.sender_id, g.receiver_id, g.context, g.priority,
            case when p_revive then nullif(
                (select jsonb_object_agg(key, value) from jsonb_each(g.headers) where key not like 'dead-%'), '{}')
            else g.headers end, g.message
        from (select * from gone order by message_id) g where p_target is not null
    )
    select count(*) into v_moved from gone;
    if v_moved > 0 and p_target is not null then
        perform nuncius.announce(null, array[p_target]);
    end if;
    return v_moved;
end $$;

-- Returns the contents of topics. `bytes` is an estimate: the mean size of each partition's last entries, times the
-- number of entries.
create or replace function nuncius.facts_of_topics(p_topics integer[])
returns table (
    topic_id integer, topic_name varchar, retention text, retention_seconds bigint, retention_bytes bigint,
    created_at timestamptz, subscriptions bigint, latest timestamptz,
    partition_ids integer[], stores integer[], brokers integer[], firsts bigint[], nexts bigint[], sizes bigint[]
) language sql stable set enable_seqscan = off set enable_bitmapscan = off as $$
    select t.topic_id, t.topic_name, t.retention, t.retention_seconds, t.retention_bytes, t.created_at,
        (select count(*) from nuncius.subscriptions s where s.topic_id = t.topic_id), p.latest,
        p.ids, p.stores, p.brokers, p.firsts, p.nexts, p.sizes
    from unnest(p_topics) with ordinality o(id, n)
    join nuncius.topics t on t.topic_id = o.id,
    lateral (
        select max(e.latest) as latest, array_agg(p.partition_id order by p.partition) as ids,
            array_agg(p.store_id order by p.partition) as stores,
            array_agg(a.broker_id order by p.partition) as brokers,
            array_agg(p.first_offset order by p.partition) as firsts,
            array_agg(p.next order by p.partition) as nexts,
            array_agg(coalesce(e.mean * (p.next - p.first_offset), 0)::bigint order by p.partition) as sizes
        from (select *, nuncius.next_offset(p.partition_id) as next from nuncius.partitions p
            where p.topic_id = t.topic_id offset 0) p
        left join nuncius.assignments a on a.partition_id = p.partition_id,
        lateral (
            select avg(octet_length(body)) as mean, max(time_of_arrival) as latest from (
                select e.body, e.time_of_arrival from nuncius.entries e
                where e.partition_id = p.partition_id and e.entry_offset >= p.first_offset
                order by e.entry_offset desc limit 20) e) e
    ) p
    order by o.n
$$;

-- Entries of a partition from an offset on, of each its size and its first p_preview bytes.
create or replace function nuncius.peek_entries(
    p_partition_id integer, p_from bigint, p_limit integer, p_preview integer
) returns table (
    entry_offset bigint, time_of_arrival timestamptz, key text, headers text, publisher varchar, size integer,
    preview bytea
) language sql stable set enable_seqscan = off set enable_bitmapscan = off as $$
    select e.entry_offset, e.time_of_arrival, e.key, e.headers::text, u.publisher_name, octet_length(e.body),
        substr(e.body, 1, p_preview)
    from nuncius.partitions p
    join nuncius.entries e using (partition_id)
    left join nuncius.publishers u using (publisher_id)
    where p.partition_id = p_partition_id and e.entry_offset >= greatest(p_from, p.first_offset)
    order by e.entry_offset limit p_limit
$$;

-- Returns subscriptions with their positions and failed deliveries. `members` are those of a group.
create or replace function nuncius.facts_of_subscriptions(p_subscriptions integer[])
returns table (
    subscription_id integer, topic_name varchar, subscriber_name varchar, holds_retention boolean,
    is_durable boolean, created_at timestamptz, confirmed_at timestamptz, positions bigint[], nexts bigint[],
    failures bigint, attempts integer, last_failure timestamptz, reason text, members bigint, consumer_id integer
) language sql stable as $$
    select s.subscription_id, t.topic_name, s.subscriber_name, s.holds_retention, s.holder is null, s.created_at,
        w.confirmed_at, w.positions, w.nexts, f.failures, f.attempts, f.last_failure, f.reason,
        (select count(*) from nuncius.members m where m.subscription_id = s.subscription_id), c.consumer_id
    from unnest(p_subscriptions) with ordinality o(id, n)
    join nuncius.subscriptions s on s.subscription_id = o.id
    join nuncius.topics t using (topic_id)
    left join nuncius.consumers c on c.subscription_id = s.subscription_id,
    lateral (
        select max(w.confirmed_at) as confirmed_at, array_agg(w.position order by w.partition) as positions,
            array_agg(w.next order by w.partition) as nexts
        from nuncius.positions_of(array[s.subscription_id]) w
    ) w, lateral (
        select count(*) as failures, max(f.attempts) as attempts, max(f.last_failure) as last_failure,
            (array_agg(f.reason order by f.last_failure desc))[1] as reason
        from (select * from nuncius.failures f where f.subscription_id = s.subscription_id limit 10000) f
    ) f
    order by o.n
$$;

-- Returns the lag of a subscription.
create or replace function nuncius.lag_of(p_subscription integer)
returns bigint language sql stable as $$
    select coalesce(sum(w.next - w.position), 0)::bigint from nuncius.positions_of(array[p_subscription]) w
$$;

-- Returns how many entries a topic holds.
create or replace function nuncius.entries_of(p_topic integer)
returns bigint language sql stable as $$
    select coalesce(sum(nuncius.next_offset(p.partition_id) - p.first_offset), 0)::bigint
    from nuncius.partitions p where p.topic_id = p_topic
$$;

-- Redelivers now the messages that wait for their retry. Returns how many.
create or replace function nuncius.retry_now(p_queue integer)
returns bigint language sql as $$
    with changed as (
        update nuncius.leases set due_at = clock_timestamp()
        where holder = 0 and queue_id = p_queue and due_at > clock_timestamp() returning 1
    )
    select count(*) from changed
$$;

-- Tables of the schema: how large, how many rows live and dead, when vacuumed.
create or replace function nuncius.facts_of_tables()
returns table (
    table_name name, bytes bigint, index_bytes bigint, live bigint, dead bigint, vacuumed_at timestamptz
) language sql stable as $$
    select s.relname, pg_total_relation_size(s.relid), pg_indexes_size(s.relid), s.n_live_tup, s.n_dead_tup,
        greatest(s.last_vacuum, s.last_autovacuum)
    from pg_stat_user_tables s where s.schemaname = 'nuncius' order by 2 desc, 1
$$;

-- Returns the longest open transactions, with their sessions.
create or replace function nuncius.open_transactions(p_limit integer default 10)
returns table (
    pid integer, user_name name, application text, address text, state text, opened_at timestamptz, query text
) language sql stable as $$
    select a.pid, a.usename, a.application_name, host(a.client_addr), a.state, a.xact_start, left(a.query, 200)
    from pg_stat_activity a
    where a.xact_start is not null and a.pid <> pg_backend_pid() and a.backend_type = 'client backend'
        and a.datname = current_database()
    order by a.xact_start limit p_limit
$$;

-- Returns the queues and topics of dead letters, their origins, and how many there are (of queues, up to a bound).
create or replace function nuncius.places_of_the_dead()
returns table (kind text, name varchar, origin text, letters bigint, queue_id integer)
language sql stable as $$
    (select 'queue', q.queue_name, substr(q.queue_name, 6), c.letters, q.queue_id
    from nuncius.queues q, lateral (
        select count(*) as letters from (
            select from nuncius.messages m where m.queue_id = q.queue_id limit 10000) m) c
    where q.queue_name like 'dead/%' order by 2 limit 1000)
    union all
    (select 'topic', t.topic_name, substr(t.topic_name, 6), nuncius.entries_of(t.topic_id), null
    from nuncius.topics t where t.topic_name like 'dead/%' order by 2 limit 1000)
$$;

-- Returns the latest runs of jobs. A run in the state running whose lock is free was interrupted.
create or replace function nuncius.facts_of_runs(p_limit integer default 10000)
returns table (
    run_id bigint, job_name varchar, state text, settings text, started_at timestamptz, finished_at timestamptz,
    rows_read bigint, rows_written bigint, summary text, error text
) language sql stable as $$
    select r.run_id, r.job_name, case when r.state = 'running' and not exists (
            select from pg_locks l
            where l.locktype = 'advisory' and l.classid = 78011 and l.objid = r.run_id % 2147483647
                and l.database = (select oid from pg_database where datname = current_database()))
        then 'interrupted' else r.state end,
        r.settings::text, r.started_at, r.finished_at, r.rows_read, r.rows_written, r.summary::text, r.error
    from nuncius.pipeline_runs r order by r.run_id desc limit p_limit
$$;

-- Returns a summary. p_inactive and p_silence: seconds after which an actor is inactive, a node dead.
create or replace function nuncius.overview(p_inactive double precision, p_silence double precision)
returns table (
    queues bigint, topics bigint, entries bigint, subscriptions bigint, lag bigint, clients bigint,
    failures bigint, nodes bigint, nodes_alive bigint, inactive bigint, bytes bigint, now timestamptz
) language sql stable as $$
    select (select count(*) from nuncius.queues), (select count(*) from nuncius.topics),
        (select coalesce(sum(nuncius.next_offset(partition_id) - first_offset), 0)::bigint from nuncius.partitions),
        (select count(*) from nuncius.subscriptions),
        (select coalesce(max(nuncius.lag_of(subscription_id)), 0) from nuncius.subscriptions),
        (select count(*) from nuncius.clients),
        (select count(*) from (select from nuncius.failures limit 100000) f)
            + (select count(*) from (select from nuncius.leases where holder = 0 limit 100000) l),
        count(*) filter (where not n.removed),
        count(*) filter (where not n.removed and n.is_alive),
        (select count(*) from nuncius.list_actors(p_inactive) a where not a.is_active),
        pg_database_size(current_database()), clock_timestamp()
    from nuncius.list_nodes(p_silence) n where n.last_heard is not null
$$;

-- Queues by their ids, and when the oldest message of each arrived.
create or replace function nuncius.oldest_in_queues(p_queues integer[])
returns table (queue_id integer, queue_name varchar, oldest timestamptz) language sql stable as $$
    select q.queue_id, q.queue_name, (select min(l.oldest) from nuncius.lines_of_queue(q.queue_id) l)
    from unnest(p_queues) with ordinality o(id, n) join nuncius.queues q on q.queue_id = o.id order by o.n
$$;

-- Returns topics with how many entries each holds and how many were ever published, the fullest first; and the same
-- for all others together, without a name.
create or replace function nuncius.fullest_topics(p_most integer)
returns table (topic_name varchar, entries bigint, published bigint) language sql stable as $$
    with counted as (
        select t.topic_name, c.*, row_number() over (order by c.entries desc, t.topic_name) as place
        from nuncius.topics t, lateral (
            select coalesce(sum(p.next - p.first_offset), 0)::bigint as entries,
                coalesce(sum(p.next), 0)::bigint as published
            from (select p.first_offset, nuncius.next_offset(p.partition_id) as next
                from nuncius.partitions p where p.topic_id = t.topic_id) p) c
    )
    select topic_name, entries, published from counted where place <= p_most
    union all
    select null, sum(entries)::bigint, sum(published)::bigint from counted where place > p_most
    having count(*) > 0
$$;
