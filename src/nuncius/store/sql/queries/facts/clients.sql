-- Return clients by their ids.
select * from nuncius.find_clients($1)
