"""An agent that works on tasks in warm sandboxes: plan, run, look at the result, correct, and forget the sandbox.

A pool keeps sandboxes ready, so that each task has a fresh one within milliseconds. `think` stands for your model.
"""

from collections.abc import Sequence

from paddock import CommandResult, Paddock

POOL: Sequence[dict[str, object]] = (
    {
        "kind": "SandboxTemplate",
        "metadata": {"name": "agent"},
        "spec": {"image": "paddock/python:1", "command": ["sleep", "infinity"]},
    },
    {"kind": "SandboxPool", "metadata": {"name": "agents"}, "spec": {"templateRef": {"name": "agent"}}},
)


def think(task: str, last: CommandResult | None) -> str:
    """Return the next program; a model would read the task and the last error here."""
    if last is None:
        return f"print(sum(range({task}))"  # a mistake, as models make them
    return f"print(sum(range({task})))"


def work(paddock: Paddock, task: str, attempts: int = 3) -> str:
    """Let the agent try until its program runs."""
    last: CommandResult | None = None
    with paddock.sandboxes.create(pool="agents", labels={"app": "pool-agent"}) as sandbox:
        for _ in range(attempts):
            last = sandbox.run_code(think(task, last), timeout=30)
            if last.ok:
                return last.text
    raise RuntimeError(f"task {task}: no success in {attempts} attempts: {last}")


if __name__ == "__main__":
    with Paddock() as paddock:
        paddock.apply(POOL)
        for task in ("10", "100", "1000"):
            print(task, "->", work(paddock, task))
