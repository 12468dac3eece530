"""Counts of examples for property tests: few in `make quick`, some in every run, many when asked for.

make quick                                              a fifth of those of every run
make test ARGS='--hypothesis-profile deep tests/plan'   forty times as many
"""

from hypothesis import HealthCheck, settings

# How long an example takes says nothing here: the machine is shared, and databases and engines take their time.
_ANY = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
_FULL = 100  # Hypothesis's own number, by which the counts in tests are meant
settings.register_profile("quick", _ANY, max_examples=10)
settings.register_profile("paddock", _ANY, max_examples=50)
settings.register_profile("deep", _ANY, max_examples=2000)
settings.load_profile("paddock")


def examples(count: int) -> int:
    """Scale a count, meant for a hundred examples a test, by the profile of this run."""
    return max(1, count * settings.default.max_examples // _FULL)
