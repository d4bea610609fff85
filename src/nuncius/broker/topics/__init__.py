"""Topics: the catalogue, publishing and publishers."""
