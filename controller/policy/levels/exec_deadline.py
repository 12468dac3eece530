"""How long a command in a sandbox may run: its template, its level and the host's operator bound what is asked."""

from collections.abc import Iterator

from controller.kinds.sandbox import Template
from controller.policy.admission import Refusal
from controller.policy.levels.levels import Level, Policy

_TEMPLATE, _LEVEL = "execDeadlineSeconds of its template", "maxExecDeadlineSeconds of its security profile"
_HOST = "exec_max_seconds of the daemon's settings"


def exec_deadline_refused(template: Template, level: Level, policy: Policy) -> Iterator[Refusal]:
    """A refusal for more than the level or the operator lets any command have."""
    asked, most, of_level = template.exec_deadline_seconds, policy.exec_max_seconds, level.most_exec_seconds
    if most and asked and asked > most:
        words = f"commands may run for {most:g} s at most on this host (exec_max_seconds); ask for no more"
        yield Refusal("execDeadlineSeconds", words)
    if of_level and asked and asked > of_level:
        words = f"a command of level {level.name} may run for {of_level} s at most (maxExecDeadlineSeconds)"
        yield Refusal("execDeadlineSeconds", f"{words}; ask for no more")


def time_limit(
    asked: float | None, own: float | None, level: tuple[int, int], most: float, default: float, *, tty: bool
) -> float:
    """Seconds, 0 without a limit; ValueError says why it can't be what is asked.

    `own` is the template's: the limit where none is asked, and the highest that may be. `level` has both of its own (0:
    none). `most` is the operator's (0: none), `default` holds where nobody else asks; not for a person at a terminal
    (`tty`).
    """
    usual_of_level, most_of_level = level
    bounds = {_TEMPLATE: own, _LEVEL: most_of_level, _HOST: most}
    known = {whose: seconds for whose, seconds in bounds.items() if seconds}
    highest = min(known.values(), default=0.0)
    if asked is None:
        usual = own or (0.0 if tty else usual_of_level or default)
        return min(usual, highest) if usual and highest else usual or highest
    if highest and (asked > highest or not asked):
        whose = next(each for each, seconds in known.items() if seconds == highest)
        wanted = f"{asked:g} s" if asked else "no limit"
        raise ValueError(f"may run for {highest:g} s at most ({whose}), not {wanted}; ask for no more")
    return asked
