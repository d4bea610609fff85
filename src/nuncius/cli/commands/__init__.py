"""The commands, one module each; modules of one subject share a room."""
