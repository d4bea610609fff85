-- Create a queue, which must not exist.
select * from nuncius.create_queue($1);
