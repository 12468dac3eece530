"""Choice of the runtime for sandboxes whose spec names none. Pure.

crun starts a container in about half of runc's time. It is used where the engine has it and it has done a sandbox's
main job in a trial: an older crun, a kernel or a layout of cgroups may not let it. A runtime that the operator made the
engine's default stays that of sandboxes, too, unless a setting says otherwise.
"""

from controller.kinds.observed.observed import HostFacts
from controller.kinds.runtime.runtime_choice import DefaultRuntime, RuntimeChoice

CRUN, RUNC = "crun", "runc"
_REGISTER = "install it and register it with the engine (deploy/README.md, Runtimes)"


def needs_trial(setting: DefaultRuntime, facts: HostFacts) -> bool:
    """Return True if the choice depends on a trial of crun."""
    return CRUN in facts.runtimes and facts.default_runtime != CRUN and _considers_crun(setting, facts)


def chosen_runtime(setting: DefaultRuntime, facts: HostFacts, trial_error: str) -> RuntimeChoice:
    """Return the choice for this engine. `trial_error` is why the trial of crun failed ("": it did not)."""
    own_default = facts.default_runtime or RUNC
    if setting == RUNC and own_default != RUNC:
        return _named(RUNC, facts, own_default)
    if not _considers_crun(setting, facts) or own_default == CRUN:
        why = "as default_runtime says" if setting == own_default else "the engine's own default"
        return RuntimeChoice("", "EngineDefault", f"{own_default}: {why}")
    if CRUN not in facts.runtimes:
        message = f"{own_default}: the engine has no crun; {_REGISTER}"
        return RuntimeChoice("", "NotRegistered", message, fell_back=setting == CRUN)
    if trial_error:
        message = f"{own_default}: crun failed in a trial: {trial_error}"
        return RuntimeChoice("", "TrialFailed", message, fell_back=setting == CRUN)
    return RuntimeChoice(CRUN, "TrialPassed", "crun: a sandbox was started with it in a trial")


def _considers_crun(setting: DefaultRuntime, facts: HostFacts) -> bool:
    return setting == CRUN or (setting == "auto" and facts.default_runtime in ("", RUNC))


def _named(runtime: str, facts: HostFacts, own_default: str) -> RuntimeChoice:
    if runtime in facts.runtimes:
        return RuntimeChoice(runtime, "Configured", f"{runtime}: as default_runtime says")
    message = f"{own_default}: the engine has no {runtime}; {_REGISTER}"
    return RuntimeChoice("", "NotRegistered", message, fell_back=True)
