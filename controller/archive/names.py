"""Names in untrusted archives: only those that stay below the folder are accepted. Pure."""

PATH_BYTES = 4096
PART_BYTES = 255
DEPTH = 128

Parts = tuple[bytes, ...]


class Unsafe(Exception):
    """Entry that is never unpacked; the message names it and the reason."""


def parts_of(name: bytes) -> Parts:
    """Split a name relative to the folder; () is the folder itself. Raises Unsafe."""
    if name.startswith(b"/"):
        raise Unsafe(f"{shown(name)}: the name is absolute")
    if b"\0" in name or len(name) > PATH_BYTES:
        raise Unsafe(f"{shown(name)}: not a valid file name")
    parts = tuple(piece for piece in name.split(b"/") if piece not in (b"", b"."))
    if b".." in parts:
        raise Unsafe(f"{shown(name)}: the name leads out of the folder (`..`)")
    if len(parts) > DEPTH or any(len(piece) > PART_BYTES for piece in parts):
        raise Unsafe(f"{shown(name)}: it is nested deeper than {DEPTH} folders, or a part of it is too long")
    return parts


def leads_out(parts: Parts, target: bytes, depth: int = 0) -> bool:
    """Tell if a symlink of that name may lead out of the folder, whatever other links exist.

    With a `depth`: out of the subfolder given by the first `depth` parts of the name.

    `..` is accepted at the start of the target only: after another link it would be relative to that link's target.
    """
    steps = [step for step in target.split(b"/") if step not in (b"", b".")]
    up = next((index for index, step in enumerate(steps) if step != b".."), len(steps))
    return target.startswith(b"/") or up > len(parts) - depth - 1 or b".." in steps[up:]


def shown(name: bytes) -> str:
    """Format a name for people, without control characters."""
    text = name.decode("utf-8", "replace")
    text = "".join(letter if letter.isprintable() else "?" for letter in text)
    return text if len(text) <= 200 else f"{text[:200]}..."
