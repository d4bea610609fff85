-- Return the ends of partitions whose entries are in this store and whose catalogue is in another one.
select * from nuncius.ends_here($1);
