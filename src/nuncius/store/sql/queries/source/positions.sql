-- Return the positions of subscriptions.
select * from nuncius.positions_of($1);
