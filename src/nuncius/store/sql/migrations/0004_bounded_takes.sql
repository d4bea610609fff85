-- Takes have a limit in bytes: procedures with another signature. They are made again with all others.
drop function if exists nuncius.take_many(
    integer[], integer[], integer[], integer[], smallint[], integer[], bigint[], boolean);
drop function if exists nuncius.lease_many(
    integer, bigint, integer[], integer[], integer[], integer[], smallint[], integer[], bigint[], boolean);
