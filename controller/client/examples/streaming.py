"""An agent that watches a long command while it runs, and ends it as soon as the output says that it went wrong."""

from paddock import Paddock, Process

BUILD = """
for step in fetch compile test; do
    echo "step $step"
    [ "$step" = compile ] && echo "error: no such symbol"
    sleep 1
done
"""


def judge(process: Process) -> list[str]:
    """Collect the output line by line; interrupt the command at the first error."""
    lines: list[str] = []
    for output in process:
        for line in output.text.splitlines():
            lines.append(f"{output.stream}: {line}")
            if line.startswith("error:"):
                process.signal("INT")
                return lines
    return lines


def work(paddock: Paddock) -> list[str]:
    """Run the build, and return what was seen until it was ended."""
    with paddock.sandboxes.create(labels={"app": "streaming"}) as sandbox:
        sandbox.files.write("/tmp/build.sh", BUILD)
        with sandbox.start("sh /tmp/build.sh", timeout=300) as process:
            seen = judge(process)
        sandbox.run("echo a shell line may report, too", on_stdout=lambda text: seen.append(f"stdout: {text.strip()}"))
        return seen


if __name__ == "__main__":
    with Paddock() as paddock:
        print("\n".join(work(paddock)))
