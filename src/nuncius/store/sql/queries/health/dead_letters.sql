-- Return the queues and topics of dead letters, and how many each holds.
select * from nuncius.places_of_the_dead()
