"""File trees as tar streams, both ways, confined to a folder. Standard library only."""
