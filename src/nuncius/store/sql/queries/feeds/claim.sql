-- Claim a durable subscription for the feed of this node.
select nuncius.claim_feed($1, $2, $3);
