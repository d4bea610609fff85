-- Return the nodes of the cluster.
select * from nuncius.list_nodes($1)
