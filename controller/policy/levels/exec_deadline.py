"""Time limit of a command in a sandbox, bounded by its template, its level and the host's operator."""

from collections.abc import Iterator

from controller.kinds.sandbox import Template
from controller.policy.levels.levels import Level, Policy
from controller.policy.refusal import Refusal

_TEMPLATE, _LEVEL = "execDeadlineSeconds of its template", "maxExecDeadlineSeconds of its security profile"
_HOST = "exec_max_seconds of the daemon's settings"


def exec_deadline_refused(template: Template, level: Level, policy: Policy) -> Iterator[Refusal]:
    """Yield a refusal for more than the level or the operator allows any command."""
    requested = template.exec_deadline_seconds
    most = policy.exec_max_seconds
    of_level = level.most_exec_seconds
    if most and requested and requested > most:
        message = f"commands may run for {most:g} s at most on this host (exec_max_seconds); ask for no more"
        yield Refusal("execDeadlineSeconds", message)
    if of_level and requested and requested > of_level:
        message = f"a command of level {level.name} may run for {of_level} s at most (maxExecDeadlineSeconds)"
        yield Refusal("execDeadlineSeconds", f"{message}; ask for no more")


def time_limit(
    requested_seconds: float | None,
    template_seconds: float | None,
    level: tuple[int, int],
    most: float,
    default: float,
    *,
    tty: bool,
) -> float:
    """Return the limit in seconds, 0 for none. ValueError says why the requested one is not allowed.

    `template_seconds` is the template's: the default, and the maximum. `level` has both of its own (0: none). `most` is
    the operator's maximum (0: none). `default` applies if nobody else asks; not for a person at a terminal (`tty`).
    """
    usual_of_level, most_of_level = level
    bounds = {_TEMPLATE: template_seconds, _LEVEL: most_of_level, _HOST: most}
    limits = {whose: seconds for whose, seconds in bounds.items() if seconds}
    highest = min(limits.values(), default=0.0)
    if requested_seconds is None:
        # A person at a terminal looks at the command: only maxima end it.
        usual = template_seconds or (0.0 if tty else usual_of_level or default)
        return min(usual, highest) if usual and highest else usual or highest
    # 0 asks for no limit, which is more than any maximum.
    if highest and (requested_seconds > highest or not requested_seconds):
        whose = next(name for name, seconds in limits.items() if seconds == highest)
        requested = f"{requested_seconds:g} s" if requested_seconds else "no limit"
        raise ValueError(f"may run for {highest:g} s at most ({whose}), not {requested}; ask for no more")
    return requested_seconds
