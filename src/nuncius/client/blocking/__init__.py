"""The client for synchronous programs: every call waits for its result.

Only `background.py` is written by hand. tools/sync_client.py writes the other files from the asyncio client.
"""
