"""How long a command in a sandbox may run: what its template says, what the host's operator does, and what is asked."""

from collections.abc import Iterator

from controller.kinds.sandbox import Template
from controller.policy.admission import Refusal
from controller.policy.levels import Policy


def exec_deadline_refused(template: Template, policy: Policy) -> Iterator[Refusal]:
    """A refusal for more than the operator lets any command have."""
    asked, most = template.exec_deadline_seconds, policy.exec_max_seconds
    if most and asked and asked > most:
        words = f"commands may run for {most:g} s at most on this host (exec_max_seconds); ask for no more"
        yield Refusal("execDeadlineSeconds", words)


def time_limit(asked: float | None, own: float | None, most: float, default: float, *, tty: bool) -> float:
    """Seconds, 0 without a limit; ValueError says why it can't be what is asked.

    `own` is the template's: the limit where none is asked, and the highest that may be. `most` is the operator's (0:
    none), `default` holds where neither asks; not for a person at a terminal (`tty`).
    """
    bounds = [each for each in (own, most) if each]
    highest = min(bounds, default=0.0)
    if asked is None:
        usual = own or (0.0 if tty else default)
        return min(usual, highest) if usual and highest else usual or highest
    if highest and (asked > highest or not asked):
        whose = "execDeadlineSeconds of its template" if highest == own else "exec_max_seconds of the daemon's settings"
        wanted = f"{asked:g} s" if asked else "no limit"
        raise ValueError(f"may run for {highest:g} s at most ({whose}), not {wanted}; ask for no more")
    return asked
