-- The subscription of a job has a name that no other may have: nuncius:JOB. The archive's was called `archive`
-- before, and took over another one of that name.
drop function if exists nuncius.follow(integer[], text, text, boolean);

create table nuncius.archives as
select s.subscription_id, s.topic_id, r.run_id is not null as made_by_a_run,
    -- A run that named neither topic nor pattern archived dead letters, too; now it does not any more.
    t.topic_name like 'dead/%' and not r.settings ?| array['topic', 'topicPattern'] as unasked
from nuncius.subscriptions s
join nuncius.topics t using (topic_id)
left join lateral (
    select run_id, settings from nuncius.pipeline_runs
    where job_name = 'archive' and s.created_at between started_at
        -- The archive subscribes when it begins; a run that was killed has no end.
        and coalesce(finished_at, started_at + interval '1 minute')
    order by run_id limit 1) r on true
where s.subscriber_name = 'archive' and s.holds_retention
    and exists (select from nuncius.pipeline_runs where job_name = 'archive')
    and not exists (
        select from nuncius.subscriptions o
        where o.topic_id = s.topic_id and o.subscriber_name = 'nuncius:archive');

update nuncius.subscriptions s set subscriber_name = 'nuncius:archive'
from nuncius.archives a where a.subscription_id = s.subscription_id and a.made_by_a_run and not a.unasked;

-- A subscription that no run made is a user's. It stays; the archive goes on from the same positions with a copy.
with copied as (
    insert into nuncius.subscriptions (topic_id, subscriber_name, holds_retention)
    select topic_id, 'nuncius:archive', true from nuncius.archives where not made_by_a_run
    returning subscription_id, topic_id
)
insert into nuncius.positions (subscription_id, partition_id, position, confirmed_at)
select c.subscription_id, p.partition_id, p.position, p.confirmed_at
from copied c join nuncius.archives a using (topic_id) join nuncius.positions p on p.subscription_id = a.subscription_id;

delete from nuncius.positions p using nuncius.archives a where p.subscription_id = a.subscription_id and a.unasked;
delete from nuncius.subscriptions s using nuncius.archives a where s.subscription_id = a.subscription_id and a.unasked;
drop table nuncius.archives;
