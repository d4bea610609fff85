"""Counters, and facts about the store for consoles and command lines."""
