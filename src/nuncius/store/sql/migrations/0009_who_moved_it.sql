-- A position says who put it there, so that whoever lost the answer can tell its own work from another's.
alter table nuncius.positions add column mover bigint;
drop function if exists nuncius.advance_many(
    integer[], integer[], bigint[], bigint[], integer[], text[], bigint[], boolean);
-- Partitions are not given to brokers that somebody has found lost.
drop function if exists nuncius.place_partitions(integer, double precision);
-- Headers that are no object of strings, and arrays that do not go together, are refused: that is in procedures, which
-- are made again after this.
