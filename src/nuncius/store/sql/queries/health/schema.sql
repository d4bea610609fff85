-- Return the version of the schema.
select max(version) from nuncius.migrations
