-- Leases of clients that have no connection to live by: their holder is -1, and they end at due_at.
create index leases_timed on nuncius.leases (due_at) where holder = -1;
