"""The client of asyncio. The modules of `_sync` are generated from these by `tests/sdk/unasync.py`."""
