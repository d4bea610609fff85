-- Return the lags of subscriptions.
select s, nuncius.lag_of(s) from unnest($1::int[]) s
