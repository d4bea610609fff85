-- Move messages to another queue, or remove them; dead letters as new messages.
select nuncius.move_messages($1, $2, $3, $4)
