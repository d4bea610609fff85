-- Return unused contexts for requests.
select nextval('nuncius.contexts') from generate_series(1, $1);
