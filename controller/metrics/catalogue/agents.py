"""Section J: calls of the agents in sandboxes, and code contexts."""

from controller.kinds.runtime.agent_call import OUTCOMES, TOOLS
from controller.kinds.runtime.context import LANGUAGES
from controller.kinds.runtime.context import OUTCOMES as EXECUTION_OUTCOMES
from controller.metrics.catalogue.family import Family, counter, gauge, histogram

TOOL = {"tool": TOOLS}
LANGUAGE = {"language": LANGUAGES}
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
    gauge(
        "paddock_contexts",
        "Code contexts in sandboxes of this host, as last heard of.",
        ("language",),
        values=LANGUAGE,
    ),
    counter(
        "paddock_context_executions_total",
        "Executions in code contexts ended.",
        ("language", "outcome"),
        values={**LANGUAGE, "outcome": EXECUTION_OUTCOMES},
    ),
    histogram(
        "paddock_context_execution_duration_seconds",
        "Length of an execution in a code context, with its wait for others.",
        ("language",),
        buckets=_SECONDS,
        values=LANGUAGE,
    ),
)
