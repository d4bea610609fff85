-- Return the total number of rows with a text in their name, and the ids of those on a page, in an order.
select total, id
from (select count(*) as total from {source} where $1 = '' or position(lower($1) in lower({name})) > 0) found
left join lateral (
    select id, row_number() over () as place from (
        select {identity} as id from {source}
        where $1 = '' or position(lower($1) in lower({name})) > 0
        order by {sort} {direction}, {identity} limit $2 offset $3) page
) page on true
order by place
