"""Fixtures live in modules named by what they fix; this file only registers them."""

pytest_plugins = ["fix_store", "fix_connections", "fix_broker", "fix_proxy"]
