-- End a subscription.
select nuncius.unsubscribe($1, $2);
