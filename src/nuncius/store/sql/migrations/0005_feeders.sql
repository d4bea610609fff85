-- A durable subscription is fed at one node at a time: the one that has it, and the one that wants it next.
alter table nuncius.subscriptions add column feeder integer, add column heir integer;
