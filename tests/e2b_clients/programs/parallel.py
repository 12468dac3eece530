"""Many sandboxes at once, each with a file, a command and its end. Arguments: template, count."""

import asyncio
import sys
import time

from e2b import AsyncSandbox


async def one(template: str, number: int) -> float:
    start = time.monotonic()
    sandbox = await AsyncSandbox.create(template, timeout=300)
    await sandbox.files.write("number", str(number))
    result = await sandbox.commands.run("sleep 0.2; cat number; echo; hostname")
    assert result.stdout.splitlines()[0] == str(number), result
    assert await sandbox.kill()
    return time.monotonic() - start


async def main() -> None:
    template, count = sys.argv[1], int(sys.argv[2])
    seconds = await asyncio.gather(*(one(template, number) for number in range(count)))
    print(f"{count} sandboxes, the slowest in {max(seconds):.1f} s")


asyncio.run(main())
