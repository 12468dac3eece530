"""Versions of the engine's API: the ones that were tried with Paddock, and their order. Pure."""

# Tried on Engine 20.10 (1.41) to 28.5 (1.51).
OLDEST = (1, 41)
NEWEST_TRIED = (1, 51)


def parse_version(text: str) -> tuple[int, int]:
    """Parse "1.41" as (1, 41); (0, 0) for anything else."""
    major, _, minor = text.partition(".")
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else (0, 0)


def format_version(version: tuple[int, int]) -> str:
    """Return a version as the engine writes it."""
    return f"{version[0]}.{version[1]}"


def negotiated(newest: tuple[int, int], lowest: tuple[int, int]) -> tuple[int, int]:
    """Return the version to use with an engine that has these: the newest tried, or its lowest if that is higher."""
    return max(min(newest, NEWEST_TRIED), lowest)


def untried(version: str) -> str:
    """Return that no engine with this version was tried, in words; "" if one was."""
    if parse_version(version) <= NEWEST_TRIED:
        return ""
    return (
        f"it is asked by API {version}, the lowest that it has, and Paddock was tried up to"
        f" {format_version(NEWEST_TRIED)}; use a newer Paddock, or give the engine a lower DOCKER_MIN_API_VERSION"
    )
