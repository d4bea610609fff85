-- Publishing one entry, for SQL clients. Inside a transaction of the client the entry appears if and only if that
-- transaction commits.

-- Publishes bytes and returns the offset, or null if this publisher has sent this count before. Without a
-- partition the key decides; without a key a publisher keeps to one partition; else it is a random one.
create or replace function nuncius.publish_bytes(
    topic text, body bytea, key text default null, headers jsonb default null,
    publisher text default null, count bigint default null, partition integer default null
) returns bigint language plpgsql as $$
declare
    v_topic integer := nuncius.ensure_topic(topic);
    v_partitions integer := (select partition_count from nuncius.topics where topic_id = v_topic);
    v_publisher integer;
    v_partition integer;
    v_base bigint;
begin
    if (publisher is null) <> (count is null) then
        raise invalid_parameter_value using message = 'a publisher needs a count, and a count a publisher';
    end if;
    if publisher is not null then
        select publisher_id into v_publisher from nuncius.ensure_publishers(array[publisher]);
    end if;
    v_partition := coalesce(partition,
        nuncius.partition_of(coalesce(key, publisher), v_partitions),
        1 + floor(random() * v_partitions)::integer);
    select bases[1] into v_base from nuncius.publish_many(
        array[v_topic], null, array[v_publisher], array[count], array[1], array[v_partition], array[1],
        null, array[key], array[headers::text], array[body]);
    if v_base = -4 then
        raise invalid_parameter_value using message = format('topic %L has no partition %s', topic, v_partition);
    elsif v_base = -5 then
        raise feature_not_supported using message =
            format('partition %s of topic %L is in the store of a broker: publish through a node', v_partition, topic);
    elsif v_base = -2 then  -- the topic was deleted while this call waited for its lock: begin with a new one
        return nuncius.publish_bytes(topic, body, key, headers, publisher, count, partition);
    end if;
    return nullif(v_base, -1);
end $$;

-- Publishes text as UTF-8. PostgreSQL resolves a parameter or literal without a type to this function.
create or replace function nuncius.publish(
    topic text, body text, key text default null, headers jsonb default null,
    publisher text default null, count bigint default null, partition integer default null
) returns bigint language sql as $$
    select nuncius.publish_bytes(topic, nuncius.bytes_of_text(body, 'publish_bytes'), key, headers, publisher, count,
        partition)
$$;

-- The same for values that have another type.
create or replace function nuncius.publish(
    topic text, body bytea, key text default null, headers jsonb default null,
    publisher text default null, count bigint default null, partition integer default null
) returns bigint language sql as $$
    select nuncius.publish_bytes(topic, body, key, headers, publisher, count, partition)
$$;

create or replace function nuncius.publish(
    topic text, body jsonb, key text default null, headers jsonb default null,
    publisher text default null, count bigint default null, partition integer default null
) returns bigint language sql as $$
    select nuncius.publish_bytes(topic, nuncius.as_bytes(body::text), key, headers, publisher, count, partition)
$$;

create or replace function nuncius.publish(
    topic text, body json, key text default null, headers jsonb default null,
    publisher text default null, count bigint default null, partition integer default null
) returns bigint language sql as $$
    select nuncius.publish_bytes(topic, nuncius.as_bytes(body::text), key, headers, publisher, count, partition)
$$;
