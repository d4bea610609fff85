-- Queries of Spark before it reads, and subscriptions for its streams.

-- Returns the partitions of topics, the store of each, and its readable range: `first_offset` up to but not
-- including `next`, which is null for a partition whose entries are in another store. Everything below `next`
-- is committed and will never change: a transaction that adds to a partition holds its lock until the commit.
create or replace function nuncius.readable_ranges(p_topics text[])
returns table (
    topic_id integer, topic_name varchar, partition integer, partition_id integer, store_id integer,
    dsn text, first_offset bigint, next bigint
) language sql stable as $$
    select t.topic_id, t.topic_name, p.partition, p.partition_id, p.store_id, s.dsn, p.first_offset,
        case when p.store_id = 1 then nuncius.next_offset(p.partition_id) end
    from nuncius.topics t
    join nuncius.partitions p using (topic_id)
    left join nuncius.stores s on s.store_id = p.store_id
    where t.topic_name = any (p_topics)
    order by t.topic_name, p.partition
$$;

-- Returns the ends of partitions whose entries are here and whose catalogue is elsewhere: one past the last entry,
-- null if there is none.
create or replace function nuncius.ends_here(p_partition_ids integer[])
returns table (partition_id integer, next bigint) language sql stable as $$
    select i, 1 + (select e.entry_offset from nuncius.entries e where e.partition_id = i
        order by e.entry_offset desc limit 1)
    from unnest(p_partition_ids) i
$$;

-- An offset from p_first to p_end such that the entry there is not before p_time and the one below it is.
-- Times nearly always go up with offsets; where a clock was set back there may be several such offsets.
create or replace function nuncius.offset_at(
    p_partition_id integer, p_first bigint, p_end bigint, p_time timestamptz
) returns bigint language plpgsql stable as $$
declare
    v_low bigint := p_first;
    v_high bigint := p_end;
    v_middle bigint;
    v_time timestamptz;
begin
    while v_low < v_high loop
        v_middle := (v_low + v_high) / 2;
        select e.time_of_arrival into v_time from nuncius.entries e
        where e.partition_id = p_partition_id and e.entry_offset >= v_middle
        order by e.entry_offset limit 1;
        if v_time < p_time then
            v_low := v_middle + 1;
        else
            v_high := v_middle;
        end if;
    end loop;
    return v_low;
end $$;

-- Subscribes a stream to topics, or finds its subscriptions, which keep their positions. A deleted topic is left
-- out, not created again. With p_is_job the name is a job's, and the subscription gets the name that is reserved
-- for it.
create or replace function nuncius.follow(
    p_topic_ids integer[], p_name text, p_start text, p_holds_retention boolean, p_is_job boolean default false
) returns table (topic_id integer, subscription_id integer) language plpgsql as $$
#variable_conflict use_column
declare
    v_subscriber text := p_name;
begin
    if p_is_job then
        v_subscriber := nuncius.job_subscriber(p_name);
    else
        perform nuncius.check_subscriber(p_name);
    end if;
    for topic_id, subscription_id in
        select t.topic_id,
            (nuncius.add_subscription(t.topic_name, v_subscriber, p_start, p_holds_retention, null)).subscription_id
        from (select topic_id, topic_name from nuncius.topics
            where topic_id = any (p_topic_ids) order by topic_id for key share) t
    loop
        update nuncius.subscriptions s set holds_retention = p_holds_retention
        where s.subscription_id = follow.subscription_id and s.holds_retention <> p_holds_retention;
        return next;
    end loop;
end $$;
