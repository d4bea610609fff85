-- Return failed deliveries awaiting redelivery, the latest first.
select * from nuncius.list_awaiting($1)
