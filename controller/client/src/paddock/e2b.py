"""E2B's calls by its own client, which works against a daemon; the stand-in that was here is gone."""

raise ImportError(
    "paddock.e2b: is gone; E2B's own client works against Paddock: pip install e2b (or e2b-code-interpreter), run"
    ' eval "$(paddock e2b env)", and write `from e2b import Sandbox`'
)
