# Generated from _async/__init__.py by `python -m tests.sdk.unasync`: change that one.
"""The client that blocks. Its modules are generated from those of `_async`."""
