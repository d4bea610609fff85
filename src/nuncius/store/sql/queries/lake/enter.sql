-- Record the location of the store's lake.
insert into nuncius.lakes (lake_name, location) values ('main', $1) on conflict do nothing;
