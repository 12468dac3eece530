"""Address of the engine's socket."""


def unix_path(base_url: str) -> str:
    """Return the socket's path in `unix://<path>`, "" for any other address."""
    scheme, _, path = base_url.partition("://")
    return path if scheme in ("unix", "http+unix") else ""
