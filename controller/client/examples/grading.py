"""Grade programs of people you do not know: a sandbox for each, and the expected answers stay outside.

    python grading.py

Some submissions are wrong, some never end, some take all memory. None sees another, or the network.
"""

from concurrent.futures import ThreadPoolExecutor

from paddock import Paddock

# Input and expected output. Only the input enters the sandbox, so that no program can print what it found there.
CASES = [("1 2", "3"), ("20 22", "42"), ("-5 5", "0")]
SUBMISSIONS = {
    "ann": "print(sum(map(int, input().split())))",
    "ben": "a, b = map(int, input().split()); print(abs(a) + abs(b))",
    "eve": "import time; time.sleep(10**6)",
    "kim": "waste = bytearray(10**9); print(3)",
}


def grade(paddock: Paddock, program: str) -> str:
    """Return how many cases a program solves."""
    solved, trouble = 0, ""
    with paddock.sandboxes.create(cpu="500m", memory="64Mi", pids=32, lifetime=300) as sandbox:
        sandbox.files.write("program.py", program)
        for case_input, expected in CASES:
            result = sandbox.exec(["python3", "program.py"], stdin=case_input, timeout=10, max_output_bytes=10_000)
            if result.timed_out:
                trouble = ", out of time"
                break  # it would be so again
            if result.exit_code == 137:  # killed: it wanted more than its 64Mi
                trouble = ", out of memory"
            elif not result.ok:
                trouble = f", exit code {result.exit_code}"
            solved += result.ok and result.text.strip() == expected
    return f"{solved} of {len(CASES)}{trouble}"


if __name__ == "__main__":
    # Threads share one Paddock; the pool's size is how many sandboxes there are at once.
    with Paddock() as paddock, ThreadPoolExecutor(4) as pool:
        grades = pool.map(lambda program: grade(paddock, program), SUBMISSIONS.values())
        for name, points in zip(SUBMISSIONS, grades, strict=True):
            print(f"{name}: {points}")
