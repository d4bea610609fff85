-- Groups: members of a subscription share its partitions. Who changes anything holds the group's lock (78022).

-- Shares the partitions out anew, evenly, moving as few as possible. A partition whose owner is still there stays
-- with it until it lets go of it. The caller holds the lock.
create or replace function nuncius.share_out(p_subscription integer)
returns void language plpgsql as $$
declare
    v_members integer[];
    v_topic integer := (select topic_id from nuncius.subscriptions where subscription_id = p_subscription);
    v_partitions integer := (select count(*) from nuncius.partitions where topic_id = v_topic);
    v_quota integer;
    v_extra integer;    -- members that may have one more than the quota
    v_generation bigint;
    v record;
begin
    -- Those who have most come first: they keep what may be more than others'.
    v_members := array(
        select m.member_id from nuncius.members m
        left join nuncius.shares s on s.subscription_id = m.subscription_id
            and coalesce(s.wanted_by, s.member_id) = m.member_id
        where m.subscription_id = p_subscription
        group by m.member_id order by count(s.partition_id) desc, m.member_id);
    delete from nuncius.shares s where s.subscription_id = p_subscription and (v_members = '{}'
        or not exists (select from nuncius.partitions p where p.partition_id = s.partition_id));
    if v_members = '{}' then
        return;
    end if;
    update nuncius.groups set generation = generation + 1 where subscription_id = p_subscription
    returning generation into v_generation;
    v_quota := v_partitions / cardinality(v_members);
    v_extra := v_partitions % cardinality(v_members);

    for v in
        with held as (
            select p.partition_id, s.member_id as owner, m.place,
                row_number() over (partition by m.place order by p.partition) as number
            from nuncius.partitions p
            left join nuncius.shares s
                on s.subscription_id = p_subscription and s.partition_id = p.partition_id
            left join unnest(v_members) with ordinality m(id, place) on m.id = coalesce(s.wanted_by, s.member_id)
            where p.topic_id = v_topic
        ), kept as (
            select partition_id, owner, place,
                place is not null and number <= v_quota + (place <= v_extra)::integer as keeps
            from held
        ), homeless as (
            select partition_id, row_number() over (order by partition_id) as number from kept where not keeps
        ), free as (  -- a row for each partition that a member lacks
            select m.place, row_number() over (order by g.n, m.place) as number
            from unnest(v_members) with ordinality m(id, place)
            left join (select place, count(*) as kept from kept where keeps group by place) k using (place),
            lateral generate_series(coalesce(k.kept, 0) + 1, v_quota + (m.place <= v_extra)::integer) g(n)
        )
        select k.partition_id, k.owner = any (v_members) as is_owned, k.owner,
            v_members[coalesce(case when k.keeps then k.place end, f.place)] as target
        from kept k left join homeless h using (partition_id) left join free f on f.number = h.number
    loop
        if v.is_owned and v.owner <> v.target then
            update nuncius.shares s set wanted_by = v.target,
                due_at = coalesce(s.due_at, clock_timestamp() + make_interval(secs => m.session_seconds))
            from nuncius.members m
            where s.subscription_id = p_subscription and s.partition_id = v.partition_id
                and m.member_id = v.owner;
        elsif v.is_owned then
            update nuncius.shares set wanted_by = null, due_at = null
            where subscription_id = p_subscription and partition_id = v.partition_id and wanted_by is not null;
        else
            insert into nuncius.shares (subscription_id, partition_id, member_id, generation)
            values (p_subscription, v.partition_id, v.target, v_generation)
            on conflict (subscription_id, partition_id) do update
            set member_id = v.target, generation = v_generation, wanted_by = null, due_at = null;
        end if;
    end loop;
end $$;

-- Hands over partitions of a group whose time has come: those that p_member has and another wants, and those that
-- have been wanted for too long. True: there were some. The caller holds the lock.
create or replace function nuncius.hand_over(p_subscription integer, p_member integer)
returns boolean language plpgsql as $$
declare
    v_generation bigint;
begin
    if not exists (
        select from nuncius.shares where subscription_id = p_subscription and wanted_by is not null
            and (member_id = p_member or due_at <= clock_timestamp())) then
        return false;
    end if;
    update nuncius.groups set generation = generation + 1 where subscription_id = p_subscription
    returning generation into v_generation;
    update nuncius.shares
    set member_id = wanted_by, generation = v_generation, wanted_by = null, due_at = null
    where subscription_id = p_subscription and wanted_by is not null
        and (member_id = p_member or due_at <= clock_timestamp());
    return true;
end $$;

-- A new member of a subscription's group. Null: no such subscription.
create or replace function nuncius.join_group(
    p_topic text, p_subscriber text, p_name text, p_holder integer, p_seconds double precision
) returns integer language plpgsql as $$
declare
    v_member integer;
    v record;
begin
    select s.subscription_id, s.topic_id into v
    from nuncius.subscriptions s join nuncius.topics t using (topic_id)
    where t.topic_name = p_topic and s.subscriber_name = p_subscriber for key share of s;
    if not found then
        return null;
    end if;
    perform pg_advisory_xact_lock(78022, v.subscription_id);
    insert into nuncius.groups (subscription_id) values (v.subscription_id) on conflict do nothing;
    insert into nuncius.members (subscription_id, member_name, holder, session_seconds)
    values (v.subscription_id, p_name, p_holder, p_seconds) returning member_id into v_member;
    perform nuncius.share_out(v.subscription_id);
    perform nuncius.announce(array[v.topic_id], null);
    return v_member;
end $$;

-- The end of memberships; their partitions go to the others. Answers how many there were.
create or replace function nuncius.leave_group(p_members integer[])
returns bigint language plpgsql as $$
declare
    v record;
    v_left bigint := 0;
begin
    for v in
        select m.subscription_id, s.topic_id, array_agg(m.member_id) as members
        from nuncius.members m join nuncius.subscriptions s using (subscription_id)
        where m.member_id = any (p_members) group by 1, 2 order by 1
    loop
        perform pg_advisory_xact_lock(78022, v.subscription_id);
        delete from nuncius.members where member_id = any (v.members);
        v_left := v_left + cardinality(v.members);
        perform nuncius.share_out(v.subscription_id);
        perform nuncius.announce(array[v.topic_id], null);
    end loop;
    return v_left;
end $$;

-- What a member has, and that it asks for more: it lets go of what others want. A row a partition; a row without a
-- partition when it has none. No row: no such member.
create or replace function nuncius.shares_of(p_member integer)
returns table (
    topic_name varchar, generation bigint, "partition" integer, "position" bigint, unread boolean
) language plpgsql as $$
#variable_conflict use_column
declare
    v_group integer := (select subscription_id from nuncius.members where member_id = p_member);
    v_topic integer := (select topic_id from nuncius.subscriptions where subscription_id = v_group);
    v_changed boolean;
begin
    if exists (
        select from nuncius.shares where subscription_id = v_group and wanted_by is not null
            and (member_id = p_member or due_at <= clock_timestamp())
    ) or exists (  -- the topic has grown
        select from nuncius.partitions p where p.topic_id = v_topic and not exists (
            select from nuncius.shares s where s.subscription_id = v_group and s.partition_id = p.partition_id)
    ) then
        perform pg_advisory_xact_lock(78022, v_group);
        v_changed := nuncius.hand_over(v_group, p_member);
        if exists (
            select from nuncius.partitions p where p.topic_id = v_topic and not exists (
                select from nuncius.shares s where s.subscription_id = v_group and s.partition_id = p.partition_id)
        ) then
            perform nuncius.share_out(v_group);
            v_changed := true;
        end if;
        if v_changed then
            perform nuncius.announce(array[v_topic], null);
        end if;
    end if;
    return query
    select t.topic_name, g.generation, p.partition, greatest(c.position, p.first_offset),
        p.store_id <> 1 or exists (
            select from nuncius.entries e where e.partition_id = p.partition_id
                and e.entry_offset >= greatest(c.position, p.first_offset))
    from nuncius.members m
    join nuncius.groups g using (subscription_id)
    join nuncius.topics t on t.topic_id = v_topic
    left join nuncius.shares s on s.subscription_id = v_group and s.member_id = p_member and s.wanted_by is null
    left join nuncius.partitions p using (partition_id)
    left join lateral (
        select c.position from nuncius.positions c
        where c.subscription_id = v_group and c.partition_id = p.partition_id
        order by c.position desc limit 1
    ) c on true
    where m.member_id = p_member
    order by p.partition;
end $$;

-- Confirms as a member, all or nothing: the partitions must have been its own since the generation that it names.
-- Answers with null, or a reason: -2 no such member   -6 not its partition any more   -7 nothing is there yet;
-- and the partition that it is about.
create or replace function nuncius.confirm_as_member(
    p_member integer, p_generation bigint, p_partitions integer[], p_positions bigint[],
    out code integer, out wrong integer
) language plpgsql as $$
declare
    v_group integer := (select subscription_id from nuncius.members where member_id = p_member);
    v_topic integer := (select topic_id from nuncius.subscriptions where subscription_id = v_group);
begin
    if v_group is null then
        code := -2;
        return;
    end if;
    perform pg_advisory_xact_lock_shared(78022, v_group);
    select case when s.member_id is null then -6 else -7 end, a.partition into code, wrong
    from unnest(p_partitions, p_positions) with ordinality a(partition, position, n)
    left join nuncius.partitions p on p.topic_id = v_topic and p.partition = a.partition
    left join nuncius.shares s on s.subscription_id = v_group and s.partition_id = p.partition_id
        and s.member_id = p_member and s.generation <= p_generation
    where s.member_id is null or (p.store_id = 1 and a.position > nuncius.next_offset(p.partition_id))
    order by a.n limit 1;
    if not found then
        perform nuncius.move_positions(
            array_agg(v_group), array_agg(p.partition_id), array_agg(a.position), p_checked => true)
        from unnest(p_partitions, p_positions) a(partition, position)
        join nuncius.partitions p on p.topic_id = v_topic and p.partition = a.partition;
    end if;
end $$;

-- A node has heard from these members. Answers with those that exist.
create or replace function nuncius.note_members(p_members integer[], p_holder integer)
returns integer[] language sql as $$
    with heard as (
        update nuncius.members set last_seen = clock_timestamp(), holder = p_holder
        where member_id = any (p_members) returning member_id
    )
    select coalesce(array_agg(member_id), '{}') from heard
$$;

-- Members that were silent for too long, or whose node is gone, leave; partitions that have been wanted for too long
-- change hands. Answers how many left; null when another node is at it.
create or replace function nuncius.expire_members()
returns bigint language plpgsql as $$
declare
    v record;
begin
    if not pg_try_advisory_xact_lock(78005, 66) then
        return null;
    end if;
    for v in
        select distinct h.subscription_id, s.topic_id from nuncius.shares h
        join nuncius.subscriptions s using (subscription_id) where h.due_at <= clock_timestamp() order by 1
    loop
        perform pg_advisory_xact_lock(78022, v.subscription_id);
        if nuncius.hand_over(v.subscription_id, 0) then
            perform nuncius.announce(array[v.topic_id], null);
        end if;
    end loop;
    return nuncius.leave_group(array(
        select member_id from nuncius.members m
        where m.last_seen < clock_timestamp() - make_interval(secs => m.session_seconds)
            or not exists (select from nuncius.holders h where h.holder = m.holder)));
end $$;

-- The topic and the subscriber whose group a member belongs to.
create or replace function nuncius.group_of(p_member integer)
returns table (topic_name varchar, subscriber_name varchar) language sql stable as $$
    select t.topic_name, s.subscriber_name
    from nuncius.members m join nuncius.subscriptions s using (subscription_id)
    join nuncius.topics t using (topic_id) where m.member_id = p_member
$$;

-- The members of a group, and the partitions that each has.
create or replace function nuncius.list_members(p_topic text, p_subscriber text)
returns table (
    member_id integer, member_name varchar, joined_at timestamptz, last_seen timestamptz, partitions integer[]
) language sql stable as $$
    select m.member_id, m.member_name, m.joined_at, m.last_seen,
        coalesce(array_agg(p.partition order by p.partition) filter (where p.partition is not null), '{}')
    from nuncius.topics t
    join nuncius.subscriptions s on s.topic_id = t.topic_id and s.subscriber_name = p_subscriber
    join nuncius.members m using (subscription_id)
    left join nuncius.shares h on h.subscription_id = m.subscription_id and h.member_id = m.member_id
    left join nuncius.partitions p on p.partition_id = h.partition_id
    where t.topic_name = p_topic
    group by m.member_id order by m.member_id
$$;
