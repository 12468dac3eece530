"""Commands for objects of any kind: read, change, delete, wait for."""
