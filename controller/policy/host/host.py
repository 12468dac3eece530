"""The policy with the abilities of one host."""

from dataclasses import replace

from controller.kinds.observed.observed import HostFacts
from controller.policy.levels.abilities import abilities
from controller.policy.levels.levels import Policy


def elsewhere(policy: Policy) -> Policy:
    """Return the policy for objects of other hosts: without anything that is known of this one alone."""
    return replace(policy, host_cpus=0, host=None, unguarded="", elsewhere=True)


def fitted(policy: Policy, facts: HostFacts) -> Policy:
    """Return the policy for the host of these facts; unchanged until the engine has answered."""
    if not facts.cpus:
        return policy
    host_abilities = abilities(facts)
    if (policy.host_cpus, policy.host) == (facts.cpus, host_abilities):
        return policy
    return replace(policy, host_cpus=facts.cpus, host=host_abilities)
