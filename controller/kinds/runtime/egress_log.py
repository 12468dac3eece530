"""What a proxy let through and refused, line by line, as `logformat egress` of policy/network/egress.py writes it."""

from dataclasses import dataclass
from typing import Literal

_FIELDS = 8
Verdict = Literal["asked", "allowed", "refused"]


@dataclass(frozen=True, slots=True)
class Access:
    """One line. `at` is Unix seconds, `target` host:port as the box wrote it, `inside` the server name in its TLS ("").

    `asked`: a tunnel was asked for, to a name that is listed; `allowed`: something went through to its end; a tunnel
    that was asked for and never allowed was cut for what is inside it, or is open. `sent_bytes` went to the box.
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
    """The access that a line tells of; None for any other line."""
    words = line.split()
    if len(words) != _FIELDS or "/" not in words[2]:
        return None
    at, _, result, method, target, inside, server, size = words
    outcome, _, status = result.partition("/")
    try:
        sent, seconds = int(size), float(at)
    except ValueError:
        return None
    verdict: Verdict = "allowed" if server != "-" else "refused"
    if server == "-" and method == "CONNECT" and (outcome, status) == ("NONE_NONE", "200"):
        verdict = "asked"
    return Access(seconds, verdict, method, target, "" if inside == "-" else inside, sent)
