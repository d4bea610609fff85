-- Subscribe as an SQL client.
select nuncius.subscribe($1, 'rome', 'earliest');
