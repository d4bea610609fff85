-- Take the last heartbeats of brokers over as their activity.
select nuncius.note_brokers();
