"""PostgreSQL: the embedded server, migrations, and the way to the stored procedures."""
