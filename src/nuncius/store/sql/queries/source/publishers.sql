-- Return the names of publishers; null where a name is forgotten.
select i, publisher_name::text from unnest(array[{ids}]) i left join nuncius.publishers on publisher_id = i;
