"""The versions of runc that have CVE-2024-21626. Pure.

They leak an open folder of the host, which a working directory can name (/proc/self/fd/8). Fixed in 1.1.12.
Distributions fixed older versions, which only their packages' versions tell.
"""

import re

LEAK = "CVE-2024-21626"
_MENDED = (1, 1, 12)
# The first fixed packages of each distribution: the prefix of their versions, and the lowest fixed number.
_PACKAGES = (
    ("1.0.0~rc6+dfsg1-3+deb10u", 3),
    ("1.0.0~rc93+ds1-5+deb11u", 3),
    ("1.1.5+ds1-1+deb12u", 1),
    ("1.1.7-0ubuntu1~20.04.", 2),
    ("1.1.7-0ubuntu1~22.04.", 2),
    ("1.1.7-0ubuntu2.", 2),
)
_VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")
_EPOCH = re.compile(r"^\d+:")


def is_fixed(version: str, package: str = "") -> bool | None:
    """Return True if that runc is fixed, by its dpkg version if known; None if it can't be told."""
    judged = _EPOCH.sub("", package) or version
    for begins, first in _PACKAGES:
        number = re.match(r"\d+", judged.removeprefix(begins)) if judged.startswith(begins) else None
        if number is not None:
            return int(number.group()) >= first
    match = _VERSION.match(judged)
    return None if match is None else tuple(int(group) for group in match.groups()) >= _MENDED
