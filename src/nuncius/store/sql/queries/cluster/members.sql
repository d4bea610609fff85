-- List all nodes.
select * from nuncius.list_nodes($1);
