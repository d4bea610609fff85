-- Release a subscription that this node has claimed.
select nuncius.release_feed($1, $2);
