"""The programs of the five documents, as commands."""
