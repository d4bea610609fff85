-- Subscribe, or find the existing subscription.
select subscription_id, created from nuncius.subscribe($1, $2, $3, $4, $5);
