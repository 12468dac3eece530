"""Programs and working directories that no sandbox may have, and the reason as a message. Pure."""

from collections.abc import Iterator

from controller.kinds.common.exec_paths import KERNEL_PATHS, in_kernel_paths, too_long
from controller.kinds.runtime.probe import Probe
from controller.kinds.sandbox import Template
from controller.policy.refusal import Refusal


def program_refused(program: str) -> str:
    """Return why this is not a valid name of a program; "" if it is."""
    long = too_long(program)
    return f"the program's name has {long}; write long text as an argument" if long else ""


def folder_refused(path: str) -> str:
    """Return why nothing may run in that folder; "" if it may."""
    if long := too_long(path):
        return f"the path has {long}; use a shorter one"
    if path and in_kernel_paths(path):
        return f"`{path}` belongs to the kernel and the engine; use a folder outside {', '.join(KERNEL_PATHS)}"
    return ""


def refusals(template: Template) -> Iterator[Refusal]:
    """Yield every reason why a template's commands can't run."""
    if template.command and (message := program_refused(template.command[0])):
        yield Refusal("command[0]", message)
    if template.working_dir and (message := folder_refused(template.working_dir)):
        yield Refusal("workingDir", message)
    for name in ("startup", "readiness", "liveness"):
        probe: Probe | None = getattr(template, name)
        if probe is not None and probe.exec is not None and (message := program_refused(probe.exec.command[0])):
            yield Refusal(f"{name}.exec.command[0]", message)
