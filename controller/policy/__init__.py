"""WHAT THE WORDS MEAN: security levels, defaults, admission, and the container that a spec stands for. Pure."""
