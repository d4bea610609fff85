"""The demonstration and the guided tour."""
