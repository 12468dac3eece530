"""Code in contexts of a sandbox, on this terminal."""
