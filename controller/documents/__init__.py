"""YAML and JSON documents with positions, their schema, and error messages. Pure."""
