-- Return the number of messages of every queue that has some.
select queue_id, depth from nuncius.depths()
