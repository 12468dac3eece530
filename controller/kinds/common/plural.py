"""Numbers with their nouns."""


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: `1 file`, `2 files`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
