-- Return the cluster that a broker's own store belongs to, and the store's number there.
select cluster_id, store_id from nuncius.belongs_to;
