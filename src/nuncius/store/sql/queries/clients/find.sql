-- Return the clients of these names.
select * from nuncius.find_clients(null, $1);
