-- Record the cluster that a broker's own store belongs to, and the store's number there.
with before as (delete from nuncius.belongs_to)
insert into nuncius.belongs_to values ($1, $2);
