"""Users of this host and holders of tokens, as the doors beside the API know them."""

import os
import pwd

from controller.api.server.peer_credentials import HOST_NAMES
from controller.app.core import Core
from controller.kinds.access.access import Caller
from controller.service.access.authenticate import Identify, Peer
from controller.store.sql_store import SqlStore

_NO_GROUP = (1 << 32) - 1


def make_identify(core: Core, store: SqlStore) -> Identify:
    """Return what authenticates callers, by the same rules as the API's listeners."""
    settings = core.settings
    return Identify(
        tokens=store.tokens,
        clock=core.clock,
        names=HOST_NAMES,
        owners=frozenset((0, os.geteuid())),
        group=lambda: HOST_NAMES.gid(settings.socket_group) if settings.socket_group else os.getegid(),
        group_role=settings.socket_group_role,
        grants=settings.access,
    )


class HostUsers:
    """Users of this host who are not connected now: their keys and links act with the grants of the moment."""

    def __init__(self, identify: Identify) -> None:
        self._identify = identify

    def caller(self, uid: int) -> Caller:
        """Return the user, with the groups of now; may block. Raises Forbidden without any grant."""
        group = _group_of(uid)
        return self._identify.peer(Peer(0, uid, _NO_GROUP if group is None else group, None))


def _group_of(uid: int) -> int | None:
    """Return the primary group of a user of this host."""
    try:
        return pwd.getpwuid(uid).pw_gid
    except (KeyError, OverflowError):
        return None
