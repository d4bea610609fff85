-- Return the versions and the size of the store, and the numbers of what it holds.
select current_setting('server_version') as postgresql,
    (select max(version) from nuncius.migrations) as schema,
    pg_database_size(current_database()) as bytes,
    (select count(*) from nuncius.queues) as queues,
    (select count(*) from nuncius.topics) as topics,
    (select count(*) from nuncius.subscriptions) as subscriptions,
    (select count(*) from nuncius.clients) as clients;
