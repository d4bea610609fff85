-- A node that has ended is known by the lock on its number, and its broker's number is given to another.
alter table nuncius.nodes add column holder integer;
drop sequence if exists nuncius.broker_ids;
drop function if exists nuncius.enter_node(text, integer, integer, text[], integer);
