"""Requests over the network: `aio` for AsyncPaddock, `blocking` for Paddock. Both have the same names."""
