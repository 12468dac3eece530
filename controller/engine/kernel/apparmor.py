"""AppArmor as it is really enforced.

An engine reports it for every kernel that has it, and then silently applies no profile where the parser that loads
them is missing (tried: Debian trixie's 26.1 without the package apparmor).
"""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from controller.kinds.observed.inside import STACKED

_OPTION = "name=apparmor"
_PROFILE = "docker-default"  # the engine loads it when it starts, before any container
LOADED = Path("/sys/kernel/security/apparmor/policy/profiles")  # one folder each, `name.number`; readable by all
PARSER = Path("/sbin/apparmor_parser")  # where containerd's library looks for it


def in_force(options: Iterable[str], loaded: Path = LOADED, parser: Path = PARSER) -> tuple[str, ...]:
    """Return the engine's security options, without AppArmor where its profile is not loaded and can't be.

    A profile that was unloaded is still attested: the engine loads it again for its next container. Where the kernel's
    list can't be read (in a container, for example), the engine is trusted.
    """
    all_options = tuple(options)
    try:
        names = {folder.name.rpartition(".")[0] for folder in loaded.iterdir()}
    except OSError:
        return all_options
    if _PROFILE in names or parser.exists():
        return all_options
    return tuple(option for option in all_options if option.split(",")[0] != _OPTION)


def with_modes(label: str, loaded: Path = LOADED) -> str:
    """Return the label of a stack with the mode of each of its profiles: the kernel says `(mixed)` of the whole.

    It stays as it is where the kernel's list can't be read, or lacks one of them.
    """
    stack, _, mode = label.rpartition(" ")
    if mode != "(mixed)":
        return label
    modes = {}
    try:
        for folder in loaded.iterdir():
            with suppress(FileNotFoundError):  # it is being replaced
                modes[_read(folder / "name")] = _read(folder / "mode")
    except OSError:
        return label
    names = stack.split(STACKED)
    return STACKED.join(f"{name} ({modes[name]})" for name in names) if modes.keys() >= {*names} else label


def _read(path: Path) -> str:
    return path.read_text().strip()
