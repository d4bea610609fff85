"""Declarations of operations, and the OpenAPI document made from them."""
