"""The policy as it stands on one host: with what that host is able to enforce in it."""

from dataclasses import replace

from controller.kinds.observed.observed import HostFacts
from controller.policy.levels.abilities import abilities
from controller.policy.levels.levels import Policy


def fitted(policy: Policy, facts: HostFacts) -> Policy:
    """The policy for the host that these facts are of; as it was while the engine has not answered yet."""
    if not facts.cpus:
        return policy
    known = abilities(facts)
    if (policy.host_cpus, policy.host) == (facts.cpus, known):
        return policy
    return replace(policy, host_cpus=facts.cpus, host=known)
