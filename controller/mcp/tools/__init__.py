"""The tools, one module a subject, and the registry of all."""
