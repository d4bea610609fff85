-- Delete a client.
select nuncius.delete_client($1);
