"""Reasons of the container runtime for which a program does not start, in words for people.

The runtime (runc, crun) tells them by its text alone, so it is read here and nowhere else.
"""

import re

_NOT_FOUND = (
    re.compile(r'exec: "(?P<name>[^"]*)": executable file not found in \$PATH'),
    re.compile(r'exec: "(?P<name>[^"]*)": (stat \S+: )?no such file or directory'),
    re.compile(r"executable file `(?P<name>[^`]*)` not found"),
)
_DENIED = re.compile(
    r'exec: "(?P<name>[^"]*)": permission denied|open executable `?(?P<crun>[^`:]*)`?: Permission denied'
)
_FOLDER = re.compile(r'(chdir to cwd \("(?P<name>[^"]*)"\)|chdir to `(?P<crun>[^`]*)`)')
_WRAPPING = re.compile(r"^.*(unable to start container process|OCI runtime \w+ failed): ", re.DOTALL)


def in_words(text: str, image: str) -> str:
    """Return why a program of an image did not start, and what to do; without the runtime's wrapping if unknown."""
    place = f"the image {image}" if image and not image.startswith("sha256:") else "its image"
    for pattern in _NOT_FOUND:
        if program := pattern.search(text):
            return (
                f'executable "{program["name"]}" is not in {place}; check its name, or choose an image that has it '
                "(`paddock image list`)"
            )
    if folder := _FOLDER.search(text):
        name = folder["name"] or folder["crun"]
        return f'working folder "{name}" can\'t be entered in {place}; name one that is there, or make it first'
    if program := _DENIED.search(text):
        name = program["name"] or program["crun"]
        return f'"{name}" can\'t be executed in {place}: permission denied; make it executable, or call its interpreter'
    return _WRAPPING.sub("", text).strip().removesuffix(": unknown")
