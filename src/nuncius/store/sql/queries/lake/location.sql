-- Return the location of the store's lake.
select location from nuncius.lakes where lake_name = 'main';
