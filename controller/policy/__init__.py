"""Policy: security levels, defaults, admission, and the container config of a spec. Pure."""
