-- A name that stands for one request knows which request that was.
alter table nuncius.publishers add column fingerprint bytea;
