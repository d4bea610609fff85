-- Return the unique identity of a topic, and the readable ranges of its partitions.
select nuncius.topic_identity($1) as topic,
    coalesce(array_agg(first_offset order by partition) filter (where partition is not null), '{}') as first,
    coalesce(array_agg(next order by partition) filter (where partition is not null), '{}') as next
from (select 1) one left join nuncius.readable_ranges(array[$1]) on true;
