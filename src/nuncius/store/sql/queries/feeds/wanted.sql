-- Return those of these subscriptions that this node has to release.
select subscription_id from nuncius.wanted_feeds($1, $2) subscription_id;
