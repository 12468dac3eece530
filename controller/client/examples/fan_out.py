"""Twenty sandboxes at once with asyncio: each evaluates one candidate, and the best one wins."""

import asyncio
import json

from paddock import AsyncPaddock, PaddockError

PROGRAM = """
import json, sys
seed = int(sys.argv[1])
print(json.dumps({"seed": seed, "score": (seed * 7919) % 101}))
"""


async def evaluate(paddock: AsyncPaddock, seed: int, slots: asyncio.Semaphore) -> dict[str, int]:
    """Return the score of one candidate; one that fails has none."""
    async with slots:
        try:
            async with await paddock.sandboxes.create(memory="64Mi", labels={"app": "fan-out"}) as sandbox:
                done = await sandbox.run_code(PROGRAM, args=[str(seed)], timeout=60, check=True)
        except PaddockError as error:
            print(f"candidate {seed}: {error}")
            return {"seed": seed, "score": -1}
        found: dict[str, int] = json.loads(done.stdout)
        return found


async def best_of(count: int, paddock: AsyncPaddock, at_once: int = 20) -> dict[str, int]:
    """Evaluate all candidates, at most so many at once."""
    slots = asyncio.Semaphore(at_once)
    scores = await asyncio.gather(*(evaluate(paddock, seed, slots) for seed in range(count)))
    return max(scores, key=lambda each: each["score"])


async def main() -> None:
    """Print the best of twenty candidates."""
    async with AsyncPaddock() as paddock:
        print(await best_of(20, paddock))


if __name__ == "__main__":
    asyncio.run(main())
