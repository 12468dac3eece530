"""Section J: calls of the agents in sandboxes."""

from controller.kinds.runtime.agent_call import OUTCOMES, TOOLS
from controller.metrics.catalogue.family import Family, counter, histogram

TOOL = {"tool": TOOLS}
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60, 300)

FAMILIES: tuple[Family, ...] = (
    counter(
        "paddock_agent_calls_total",
        "Calls of agents in sandboxes ended, commands by their quick path too.",
        ("tool", "outcome"),
        values={**TOOL, "outcome": OUTCOMES},
    ),
    histogram(
        "paddock_agent_call_duration_seconds",
        "Length of a call of an agent; of a command by the quick path, until it has started.",
        ("tool",),
        buckets=_SECONDS,
        values=TOOL,
    ),
)
