"""Commands that run nodes."""
