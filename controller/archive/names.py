"""Names in an archive, which may come from an enemy: only what stays below the folder is let through. Pure."""

PATH_BYTES = 4096
PART_BYTES = 255
DEPTH = 128

Parts = tuple[bytes, ...]


class Unsafe(Exception):
    """A name, a link or a kind of entry that is never unpacked; says which and why."""


def parts_of(name: bytes) -> Parts:
    """The parts of a name relative to the folder; () is the folder itself. Raises Unsafe."""
    if name.startswith(b"/"):
        raise Unsafe(f"{shown(name)}: the name is absolute")
    if b"\0" in name or len(name) > PATH_BYTES:
        raise Unsafe(f"{shown(name)}: no file can have that name")
    parts = tuple(each for each in name.split(b"/") if each not in (b"", b"."))
    if b".." in parts:
        raise Unsafe(f"{shown(name)}: the name leads out of the folder (`..`)")
    if len(parts) > DEPTH or any(len(each) > PART_BYTES for each in parts):
        raise Unsafe(f"{shown(name)}: it is nested deeper than {DEPTH} folders, or a part of it is too long")
    return parts


def leads_out(parts: Parts, target: bytes, depth: int = 0) -> bool:
    """Whether a symlink of that name may lead out of the folder, whatever other links there are beside it.

    With a `depth`: out of the folder below it that the name's first `depth` parts give.

    `..` is let through at the target's beginning only: after another link it would be relative to where that leads.
    """
    steps = [each for each in target.split(b"/") if each not in (b"", b".")]
    up = next((index for index, each in enumerate(steps) if each != b".."), len(steps))
    return target.startswith(b"/") or up > len(parts) - depth - 1 or b".." in steps[up:]


def shown(name: bytes) -> str:
    """A name for people, without what would steer a terminal."""
    text = name.decode("utf-8", "replace")
    text = "".join(each if each.isprintable() else "?" for each in text)
    return text if len(text) <= 200 else f"{text[:200]}..."
