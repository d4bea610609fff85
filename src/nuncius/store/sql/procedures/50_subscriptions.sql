-- Subscriptions: a durable place in a topic.

-- The name under which a job subscribes. Names with this prefix belong to jobs.
create or replace function nuncius.job_subscriber(p_job text)
returns text language sql immutable as $$ select 'nuncius:' || p_job $$;

-- Refuses a name that belongs to a job.
create or replace function nuncius.check_subscriber(p_subscriber text)
returns void language plpgsql as $$
begin
    if starts_with(p_subscriber, nuncius.job_subscriber('')) then
        raise invalid_parameter_value using message = format(
            'the subscriber %L is a job: names that begin with %L are reserved', p_subscriber, nuncius.job_subscriber(''));
    end if;
end $$;

-- Subscribes, or finds the subscription there is (which keeps its place). start: 'latest' sees only what
-- comes after, 'earliest' everything that is still there. The topic is made if it does not exist. With a holder
-- the subscription lives as long as that node (or until it ends it). One that is there and would go with a node is
-- taken over by this one, or becomes durable if no holder is given; one that is durable stays so. Names of jobs
-- are refused.
create or replace function nuncius.subscribe(
    topic text, subscriber text, start text default 'latest', holds_retention boolean default false,
    holder integer default null,
    out subscription_id integer, out created boolean
) language plpgsql as $$
begin
    perform nuncius.check_subscriber(subscriber);
    select a.subscription_id, a.created into subscription_id, created
    from nuncius.add_subscription(topic, subscriber, start, holds_retention, holder) a;
end $$;

-- Like subscribe, under any name.
create or replace function nuncius.add_subscription(
    p_topic text, p_subscriber text, p_start text, p_holds_retention boolean, p_holder integer,
    out subscription_id integer, out created boolean
) language plpgsql as $$
#variable_conflict use_column
declare
    v_topic integer;
begin
    if p_start is null or p_start not in ('latest', 'earliest') then
        raise invalid_parameter_value
            using message = format('start at ''latest'' or ''earliest'', not at %L', p_start);
    end if;
    loop
        v_topic := nuncius.ensure_topic(p_topic);
        perform from nuncius.topics where topic_id = v_topic for key share;
        exit when found;  -- and nobody deletes it before we are done
    end loop;
    loop
        insert into nuncius.subscriptions (topic_id, subscriber_name, holds_retention, holder)
        values (v_topic, p_subscriber, p_holds_retention, p_holder)
        on conflict do nothing
        returning subscription_id into subscription_id;
        created := found;
        exit when created;
        update nuncius.subscriptions set holder = p_holder
        where topic_id = v_topic and subscriber_name = p_subscriber and holder <> coalesce(p_holder, 0);
        select s.subscription_id into subscription_id from nuncius.subscriptions s
        where s.topic_id = v_topic and s.subscriber_name = p_subscriber;
        exit when found;  -- else it has just ended
    end loop;
    if created and p_start = 'latest' then
        insert into nuncius.positions (subscription_id, partition_id, position)
        select subscription_id, partition_id, nuncius.next_offset(partition_id)
        from nuncius.partitions where topic_id = v_topic;
    end if;
end $$;

-- Ends subscriptions and forgets all about them; if a holder is given, only those that are still its own.
create or replace function nuncius.end_subscriptions(p_ids integer[], p_holder integer default null)
returns bigint language plpgsql as $$
declare
    v_ended integer[];
begin
    with ended as (
        delete from nuncius.subscriptions
        where subscription_id = any (p_ids) and (p_holder is null or holder = p_holder)
        returning subscription_id
    )
    select coalesce(array_agg(subscription_id), '{}') into v_ended from ended;
    delete from nuncius.positions where subscription_id = any (v_ended);
    delete from nuncius.deliveries where subscription_id = any (v_ended);
    delete from nuncius.failures where subscription_id = any (v_ended);
    return cardinality(v_ended);
end $$;

-- Ends one subscription. False: there was none.
create or replace function nuncius.unsubscribe(topic text, subscriber text)
returns boolean language plpgsql as $$
declare
    v_ids integer[] := array(
        select s.subscription_id from nuncius.subscriptions s join nuncius.topics t using (topic_id)
        where t.topic_name = topic and s.subscriber_name = subscriber);
begin
    if nuncius.end_subscriptions(v_ids) = 0 then
        return false;
    end if;
    perform pg_notify('nuncius', 'c');
    return true;
end $$;

-- Where subscriptions stand in each partition of their topic. `position` is the next offset to read, `next`
-- the next one to be published, so their difference is the lag. A subscriber of a partition in another store may
-- be further than we know that it goes.
create or replace function nuncius.positions_of(subscription_ids integer[])
returns table (
    subscription_id integer, partition integer, partition_id integer, "position" bigint, next bigint,
    confirmed_at timestamptz
) language sql stable as $$
    select s.subscription_id, p.partition, p.partition_id,
        greatest(c.position, p.first_offset), greatest(c.position, nuncius.next_offset(p.partition_id)),
        c.confirmed_at
    from nuncius.subscriptions s
    join nuncius.partitions p using (topic_id)
    left join lateral (
        select c.position, c.confirmed_at from nuncius.positions c
        where c.subscription_id = s.subscription_id and c.partition_id = p.partition_id
        order by c.position desc limit 1
    ) c on true
    where s.subscription_id = any (subscription_ids)
    order by s.subscription_id, p.partition
$$;

-- Confirms, for several subscriptions, everything below a position of a partition. Positions only go
-- forward: confirming what is confirmed changes nothing. Answers per item:
--   0 confirmed   -2 no such subscription or partition   -7 nothing was published there yet
create or replace function nuncius.confirm_many(
    p_subscriptions integer[], p_partition_ids integer[], p_positions bigint[]
) returns integer[] language plpgsql as $$
declare
    v_codes integer[];
begin
    select array_agg(case
        when s.subscription_id is null or p.partition_id is null then -2
        -- A reader of a partition in another store may know more of its end than we do.
        when c.position is null or p.store_id = 1 and c.position > nuncius.next_offset(c.id) then -7
        else 0 end order by c.n)
    into v_codes
    from unnest(p_subscriptions, p_partition_ids, p_positions) with ordinality c(subscription, id, position, n)
    left join nuncius.subscriptions s on s.subscription_id = c.subscription
    left join nuncius.partitions p on p.partition_id = c.id and p.topic_id = s.topic_id;

    insert into nuncius.positions (subscription_id, partition_id, position)
    select c.subscription, c.id, max(c.position)
    from unnest(p_subscriptions, p_partition_ids, p_positions, v_codes) c(subscription, id, position, code)
    where c.code = 0
    group by c.subscription, c.id
    having max(c.position) > coalesce((
        select q.position from nuncius.positions q
        where q.subscription_id = c.subscription and q.partition_id = c.id
        order by q.position desc limit 1), 0)
    on conflict do nothing;
    return v_codes;
end $$;

-- Confirms everything below a position, by names. False: no such subscription, partition or entry. Names of jobs
-- are refused.
create or replace function nuncius.confirm(
    topic text, subscriber text, next_offset bigint, partition integer default 1
) returns boolean language plpgsql as $$
begin
    perform nuncius.check_subscriber(subscriber);
    return (
        select coalesce(bool_and(0 = any (nuncius.confirm_many(
            array[s.subscription_id], array[p.partition_id], array[next_offset]))), false)
        from nuncius.topics t
        join nuncius.subscriptions s on s.topic_id = t.topic_id and s.subscriber_name = subscriber
        join nuncius.partitions p on p.topic_id = t.topic_id and p.partition = confirm.partition
        where t.topic_name = topic);
end $$;

-- The subscriptions of a topic, of a subscriber, or all, with their lag.
create or replace function nuncius.list_subscriptions(
    topic text default null, subscriber text default null
) returns table (
    subscription_id integer, topic_name varchar, subscriber_name varchar, holds_retention boolean,
    created_at timestamptz, lag bigint, confirmed_at timestamptz
) language sql stable as $$
    select s.subscription_id, t.topic_name, s.subscriber_name, s.holds_retention, s.created_at,
        sum(w.next - w.position)::bigint, max(w.confirmed_at)
    from nuncius.subscriptions s
    join nuncius.topics t using (topic_id),
    lateral nuncius.positions_of(array[s.subscription_id]) w
    where (topic is null or t.topic_name = topic)
        and (subscriber is null or s.subscriber_name = subscriber)
    group by s.subscription_id, t.topic_name
    order by t.topic_name, s.subscriber_name
$$;
