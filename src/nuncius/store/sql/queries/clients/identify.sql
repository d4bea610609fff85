-- Return the client of an id.
select * from nuncius.identify($1);
