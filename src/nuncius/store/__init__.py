"""PostgreSQL: the embedded server, migrations, and calls of the stored procedures."""
