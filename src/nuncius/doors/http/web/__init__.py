"""Browsers: pages, the console, and the rules for pages of other sites."""
