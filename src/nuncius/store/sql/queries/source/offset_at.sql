-- Search for an offset at which a time begins.
select nuncius.offset_at($1, $2, $3, $4) as found;
