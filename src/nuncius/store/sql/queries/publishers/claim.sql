-- Let the name of a single request stand for the first request that claims it.
select * from nuncius.claim_publisher($1, $2);
