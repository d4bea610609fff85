"""What operations declare, and the OpenAPI document made from it."""
