-- Return the identity of the cluster.
select cluster_id from nuncius.cluster;
