"""The egress proxy's access log, in the format `logformat egress` of policy/network/egress.py."""

from dataclasses import dataclass
from typing import Literal

_FIELDS, _DENIED, _ABORTED = 8, "TCP_DENIED", "_ABORTED"
_INNER = "127.0.0.1"  # the proxy's second half, which logs by itself what the first one passes on to it
_NO_ADDRESS = "503"
Verdict = Literal["asked", "allowed", "refused", "unresolved"]


@dataclass(frozen=True, slots=True)
class Access:
    """One line of the log.

    `at` is Unix seconds, `target` host:port as the sandbox wrote it, `inside` the server name in its TLS (""). `asked`:
    a tunnel to a listed name was requested. `allowed`: data passed until the end. A tunnel that was requested and never
    allowed was cut for its contents, or is open. `unresolved`: its name is listed, and had no address (the DNS failed,
    or the client left before it answered). `sent_bytes` went to the sandbox.
    """

    at: float
    verdict: Verdict
    method: str
    target: str
    inside: str
    sent_bytes: int

    @property
    def host(self) -> str:
        return self.target.rpartition(":")[0]


def parsed(line: str) -> Access | None:
    """Return the access of a line; None for any other line."""
    columns = line.split()
    if len(columns) != _FIELDS or "/" not in columns[2]:
        return None
    at, _, result, method, target, inside, server, size = columns
    outcome, _, status = result.partition("/")
    if method == "-" and status == "000":
        return None  # a connection that ended without a request
    if server == _INNER:
        return None
    try:
        sent, seconds = int(size), float(at)
    except ValueError:
        return None
    verdict: Verdict = "allowed" if server != "-" else "refused"
    if server == "-" and method == "CONNECT" and (outcome, status) == ("NONE_NONE", "200"):
        verdict = "asked"
    elif server == "-" and outcome.startswith(_DENIED):
        verdict = "unresolved" if status == _NO_ADDRESS else "refused"
    elif server == "-" and (status[:1] == "5" or outcome.endswith(_ABORTED)):
        verdict = "unresolved"
    return Access(seconds, verdict, method, target, "" if inside == "-" else inside, sent)
