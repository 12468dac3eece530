"""Roles of a daemon among those of many hosts."""

from typing import Literal

# `api`: it answers people and programs. `host`: it keeps the sandboxes of its machine. `fleet`: it may decide for all.
DaemonRole = Literal["api", "host", "fleet"]
ROLES: tuple[DaemonRole, ...] = ("api", "host", "fleet")
