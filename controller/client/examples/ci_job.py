"""A CI job: run a repository's tests in a sandbox for each line of a matrix, and bring the reports out.

    python ci_job.py [REPOSITORY [REPORTS]]

A step of any CI: the exit code is 1 if a job failed, and REPORTS has a folder for each. What a pull request brings
along runs without a network, and sees neither the runner's files nor its secrets.
"""

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from paddock import Paddock

# A job each: an image, and variables of the tests. Further Pythons are further images.
MATRIX = {
    "plain": ("paddock/python:1", {}),
    "strict": ("paddock/python:1", {"PYTHONWARNINGS": "error"}),
}
TESTS = "mkdir reports && cd repository && python3 -m unittest discover -v > ../reports/tests.txt 2>&1"


def run_job(paddock: Paddock, repository: Path, reports: Path, name: str) -> bool:
    """Run one job; return True if its tests passed."""
    image, variables = MATRIX[name]
    # A lifetime, in case this program is killed: the sandbox goes nevertheless.
    with paddock.sandboxes.create(
        image=image, env=variables, cpu="1", memory="256Mi", labels={"app": "ci"}, lifetime=900
    ) as sandbox:
        sandbox.files.mkdir("repository")
        sandbox.files.upload(f"{repository}/.", "repository")
        result = sandbox.run(TESTS, timeout=600)
        sandbox.files.download("reports/.", reports / name)
    print(f"{name}: {'passed' if result.ok else f'failed (exit code {result.exit_code})'}", flush=True)
    return result.ok


def main() -> int:
    """Run all jobs; return the exit code."""
    parser = argparse.ArgumentParser(description="Run a repository's tests in sandboxes.")
    parser.add_argument("repository", nargs="?", type=Path, default=Path())
    parser.add_argument("reports", nargs="?", type=Path, default=Path("reports"))
    options = parser.parse_args()
    options.reports.mkdir(parents=True, exist_ok=True)
    with Paddock() as paddock, ThreadPoolExecutor(2) as pool:  # two jobs at a time
        passed = [*pool.map(lambda name: run_job(paddock, options.repository, options.reports, name), MATRIX)]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
