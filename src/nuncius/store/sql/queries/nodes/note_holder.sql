-- Record a node's number, so that other nodes notice its end.
insert into nuncius.holders values ($1) on conflict do nothing;
