"""A coding agent: write a file, run the tests, read what failed, correct it, until the tests pass.

    python coding_agent.py

`think` stands for your model. What it writes runs in the sandbox, and never on your machine.
"""

from paddock import Paddock

TESTS = """
import unittest
from slug import slug

class TestSlug(unittest.TestCase):
    def test_words(self):
        self.assertEqual(slug("Hello World"), "hello-world")

    def test_spaces_around(self):
        self.assertEqual(slug("  Hello  World "), "hello-world")
"""


def think(failure: str) -> str:
    """Return the next version of slug.py; a model would read the task and the failure here."""
    if not failure:
        return "def slug(title):\n    return title.lower().replace(' ', '-')\n"  # nearly right, as models are
    return "def slug(title):\n    return '-'.join(title.lower().split())\n"


def work(paddock: Paddock, attempts: int = 5) -> str:
    """Return the program that passes the tests."""
    failure = ""
    # One sandbox for the whole task: files stay from one command to the next.
    with paddock.sandboxes.create(labels={"app": "coding-agent"}, lifetime=600) as sandbox:
        sandbox.files.write("test_slug.py", TESTS)
        for attempt in range(1, attempts + 1):
            sandbox.files.write("slug.py", think(failure))
            # With a timeout, as a model writes endless loops, too. No `check=True`: a failed test is no error here.
            # -B: else Python may run what it cached of a version that was written within the same second.
            result = sandbox.run("python3 -B -m unittest", timeout=60)
            print(f"attempt {attempt}:", "passed" if result.ok else "failed")
            if result.ok:
                return sandbox.files.read("slug.py")
            failure = result.stderr
    raise RuntimeError(f"no success in {attempts} attempts: {failure}")


if __name__ == "__main__":
    with Paddock() as paddock:
        print(work(paddock))
