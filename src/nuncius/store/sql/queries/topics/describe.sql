-- Return the topics of these names, or all, with the ends of their partitions and the number of subscriptions.
select t.*,
    array(
        select row(p.first_offset, nuncius.next_offset(p.partition_id)) from nuncius.partitions p
        where p.topic_id = t.topic_id order by p.partition
    ) as ends,
    (select count(*) from nuncius.subscriptions s where s.topic_id = t.topic_id) as readers
from nuncius.find_topics($1) t;
