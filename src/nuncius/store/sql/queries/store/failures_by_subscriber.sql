-- Sum up failed deliveries by destination and subscriber.
select destination, subscriber, count(*) as failures, max(attempts) as attempts,
    max(last_failure) as last_failure, (array_agg(reason order by last_failure desc))[1] as reason
from nuncius.list_failures(null) group by destination, subscriber order by 5 desc limit 1000;
