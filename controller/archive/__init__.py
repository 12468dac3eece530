"""Trees of files as tar streams, both ways, confined to a folder. Imports nothing but the standard library."""
