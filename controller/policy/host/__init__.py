"""The host: its abilities, pressure, and the findings of `paddock doctor`."""
