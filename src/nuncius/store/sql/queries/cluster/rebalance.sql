-- Spread the partitions of the common store evenly over the healthy brokers.
select nuncius.rebalance_partitions($1);
