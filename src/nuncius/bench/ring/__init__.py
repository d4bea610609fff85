"""A ring of Tribbler nodes with data, for its benchmark."""
