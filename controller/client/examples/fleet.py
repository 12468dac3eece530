"""A fleet of agents: twelve tasks, four at a time, each in a fresh sandbox of a pool.

    python fleet.py

A warm sandbox is there within milliseconds, and the pool starts the next one meanwhile. The more of them it keeps
(`warmReplicas`), the fewer tasks wait for a start.
"""

import asyncio

from paddock import AsyncPaddock, PaddockError

POOL = [
    {
        "kind": "SandboxTemplate",
        "metadata": {"name": "example-agent"},
        "spec": {"image": "paddock/python:1", "command": ["sleep", "infinity"]},
    },
    {
        "kind": "SandboxPool",
        "metadata": {"name": "example-fleet"},
        "spec": {"templateRef": {"name": "example-agent"}, "warmReplicas": 2},
    },
]
PROGRAM = "import sys; seed = int(sys.argv[1]); print(seed * 7919 % 101)"  # your agent's work


async def work(paddock: AsyncPaddock, seed: int, slots: asyncio.Semaphore) -> int:
    """Return the score of one task; a task that fails ends no other."""
    async with slots:
        try:
            async with paddock.sandboxes.create(pool="example-fleet") as sandbox:
                result = await sandbox.run_code(PROGRAM, args=[str(seed)], timeout=60, check=True)
                return int(result.text)
        except PaddockError as error:
            print(f"task {seed}: {error}")
            return -1


async def main() -> None:
    """Print the best of all tasks."""
    slots = asyncio.Semaphore(4)  # more tasks than the host has room for wait here, and not in the daemon
    async with AsyncPaddock() as paddock:
        await paddock.apply(POOL)
        try:
            scores = await asyncio.gather(*(work(paddock, seed, slots) for seed in range(12)))
            print(f"best: task {scores.index(max(scores))} with {max(scores)}")
        finally:
            await paddock.pools.delete("example-fleet", wait=True)  # else it keeps its warm sandboxes
            await paddock.templates.delete("example-agent")


if __name__ == "__main__":
    asyncio.run(main())
