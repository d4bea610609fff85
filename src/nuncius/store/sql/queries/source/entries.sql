-- Read a range of a partition. `without` selects rows in which the columns that are not read are null.
select {columns} from nuncius.entries
where partition_id = {partition_id} and entry_offset >= {first} and entry_offset < {end}{without}
order by entry_offset;
