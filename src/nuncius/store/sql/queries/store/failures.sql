-- List failed deliveries, the latest first.
select * from nuncius.list_failures($1);
