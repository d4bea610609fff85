-- Subscribe to topics for a stream or a job, or find its subscriptions.
select * from nuncius.follow($1, $2, $3, $4, $5);
