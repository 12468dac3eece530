"""The other processes of store tests (store_backends.Child): each command is a function."""

import contextlib
import os
import tempfile
import warnings
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

from controller.kinds.access.audit import AuditEntry
from controller.ports import StoreError
from controller.store.sql_store import SqlStore
from tests.contract.claim_backends import Claimant, add_member
from tests.contract.store_backends import insert, new_sandbox

_test: Connection  # the way to the test


def say(what: object) -> None:
    _test.send(what)


def wait() -> None:
    _test.recv()


def identify(store: SqlStore) -> None:
    """Open when told to, and say whose store it is."""
    say("ready")
    wait()
    store.open()
    say(store.instance_id)


def write(store: SqlStore, writer: str, commits: int) -> None:
    """Commit so many times, one new object each."""
    store.open()
    say("ready")
    wait()
    for number in range(commits):
        insert(store, new_sandbox(f"{writer}-{number}"))
    say("done")


def append(store: SqlStore, writer: str, times: int) -> None:
    """Append so many times to the audit log, an entry by itself and one with a change."""
    own_store = SqlStore(store._url, schema=store._schema, writer=writer, wait_seconds=60)
    own_store.open()
    say("ready")
    wait()
    for number in range(times):
        entry = AuditEntry(float(number), "ann", "here", "exec", "Sandbox", "default", f"{writer}-{number}")
        own_store.audit.append([entry])
        with own_store.transaction() as transaction:
            transaction.put(new_sandbox(f"{writer}-{os.getpid()}-{number}"))
            transaction.audit(entry)
    own_store.close()
    say("done")


def write_following(store: SqlStore, name: str) -> None:
    """Follow the others, and when told to, commit one new object."""
    store.open()
    end = store.follow(lambda: None)
    say("ready")
    wait()
    insert(store, new_sandbox(name))
    end()
    say("done")


def claim(store: SqlStore, uid: str) -> None:
    """Try to insert the one name that the others want too."""
    store.open()
    say("ready")
    wait()
    try:
        insert(store, new_sandbox("contested", uid=uid))
    except StoreError as error:
        say(type(error).__name__)
    else:
        say("won")


def hold(store: SqlStore) -> None:
    """Keep a write transaction open, all sent but nothing committed, until told to give it up."""
    store.open()
    with contextlib.suppress(KeyboardInterrupt), store.transaction() as transaction:
        transaction.put(new_sandbox("held"))
        transaction.flush()
        say("holding")
        wait()
        raise KeyboardInterrupt
    say("done")


def unprivileged(store: SqlStore, user_id: int) -> None:
    """Open as a user whom file modes bind, and say why it did not work."""
    # That user may not be able to read the code: load all of it first.
    with tempfile.TemporaryDirectory() as folder:
        second = SqlStore(f"sqlite:///{folder}/other.db")
        second.open()
        second.close()
    if os.getuid() == 0:
        os.setgid(user_id)
        os.setuid(user_id)
    try:
        store.open()
    except StoreError as error:
        say(str(error))
    else:
        say(store.ping())


def lead(store: SqlStore, seconds: float, name: str = "host/host", obj: str = "late") -> None:
    """Hold a lease; when told to, say whether it may act, what came of a write, and whether the lease is kept."""
    lease = store.lease(name, seconds=seconds)
    holder = lease.acquire()
    store.open()
    say(holder)
    wait()
    say(lease.is_held())
    try:
        insert(store, new_sandbox(obj))
    except StoreError as error:
        say(str(error))
    else:
        say("written")
    say(lease.renew())


def claim_all(store: SqlStore, writer: str, rounds: int) -> None:
    """In each round, when told to, take all the warm members that are to be had; say which."""
    store.open()
    for number in range(rounds):
        say("ready")
        wait()
        say(Claimant(store, f"{writer}-{number}").claim_all("128Mi"))


def add_members(store: SqlStore, host: str, most: int) -> None:
    """When told to, add members of a pool on a host until all hosts together have `most`; say how many."""
    store.open()
    say("ready")
    wait()
    number = 0
    while add_member(store, f"{host}-{number}", host, most):
        number += 1
    say(number)


def claim_elsewhere(store: SqlStore, besides: str) -> None:
    """When told to, take ready members of other hosts until there is none; say which."""
    store.open()
    say("ready")
    wait()
    won: list[str] = []
    while uid := _claimed_elsewhere(store, besides):
        won.append(uid)
    say(won)


def _claimed_elsewhere(store: SqlStore, besides: str) -> str:
    with store.transaction() as transaction:
        ready_member = transaction.ready_member("p-uid", "k", besides=besides)
        if ready_member is None:
            return ""
        transaction.put_instance(replace(ready_member, role="sandbox"))
        return ready_member.uid


_CLAIMS = (claim, claim_all, claim_elsewhere, add_members)
_COMMANDS = (identify, write, append, write_following, *_CLAIMS, hold, unprivileged, lead)
COMMANDS = {command.__name__: command for command in _COMMANDS}


def main(test: Connection, command: str, url: str, schema: str | None, *arguments: Any) -> None:
    global _test  # noqa: PLW0603 - the methods of one process
    _test = test
    warnings.simplefilter("error")
    store = SqlStore(url, schema=schema, wait_seconds=60)
    try:
        COMMANDS[command](store, *arguments)
    finally:
        store.close()
