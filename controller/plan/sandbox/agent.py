"""The agent of a sandbox, in its status and in explanations.

The container's main process is the agent: it needs no supervision of its own.
"""

from collections.abc import Iterator

from controller.kinds.meta import Condition
from controller.kinds.observed.observed import Container
from controller.kinds.runtime.agent import PORT
from controller.plan.base.reconcile_context import ALIVE, ReconcileContext

TYPE = "AgentCallersEnforced"


def condition(context: ReconcileContext) -> Iterator[Condition]:
    """Yield the AgentCallersEnforced condition of a sandbox whose agent is for the daemon alone."""
    if context.rendered is None or context.rendered.agent is None or context.rendered.agent.callers != "Paddock":
        return
    container = context.container
    if container is None or container.state not in ALIVE or container.inside is None or container.inside.unread:
        yield Condition(TYPE, "Unknown", "NotRunning", "its user is read at every start")
    elif not container.agent:
        yield Condition(TYPE, "Unknown", "NoAgent", "its container was created without an agent")
    elif container.inside.uid == 0:
        message = "it runs as root, so its programs can't be told from the daemon; set spec.template.user"
        yield Condition(TYPE, "False", "RunsAsRoot", message)
    else:
        yield Condition(TYPE, "True", "OtherUser", "the agent refuses connections of the sandbox's own user")


def desired_agent(context: ReconcileContext) -> Iterator[tuple[str, str]]:
    """Yield the desired agent as text, if there is one."""
    agent = context.rendered.agent if context.rendered else None
    if agent is not None:
        yield "agent", f"on port {PORT}, callers {agent.callers}, git {agent.git}, root {agent.root}"


def observed_agent(context: ReconcileContext, container: Container) -> Iterator[tuple[str, str]]:
    """Yield the agent of the container as text, if it has one or should have one."""
    if container.agent:
        yield "agent", f"runtime {container.agent}"
    elif context.rendered is not None and context.rendered.agent is not None:
        yield "agent", "none: its container was created without one"
