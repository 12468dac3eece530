"""`paddock get -w`: existing objects, then every change, aligned, until interrupted."""

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result

from tests.cli.conftest import Run
from tests.daemon import wait_for
from tests.helpers_api import QUICKSTART, ApiStack

OTHER = QUICKSTART.replace("name: quickstart", "name: other").replace("demo", "web")


@pytest.fixture
def watch(paddock: Run, served: ApiStack, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run `get ... -w`, change objects once it watches, and end it as a stopping daemon does."""

    monkeypatch.setattr("controller.cli.objects.watch.RESTART_SECONDS", 0)  # it does not come back

    def run(*words: str, change: Callable[[], object], lines: int) -> Result:
        hub, done = served.services.watches, []
        thread = threading.Thread(target=lambda: done.append(paddock("get", *words)))
        thread.start()
        wait_for("it watches", lambda: hub.count == 1 or done)
        change()
        wait_for("all is handed on", lambda: done or hub._at == served.store.revision())
        hub.close()
        thread.join()
        (result,) = done
        assert "the daemon is stopping" in result.stderr
        assert len(result.stdout.splitlines()) == lines, result.stdout
        return result

    return run


def test_rows_follow_the_table_aligned(watch: Callable[..., Result], served: ApiStack) -> None:
    served.apply()
    served.clock.advance(300)
    output = watch("sb", "-w", change=served.set_ready, lines=3).stdout
    assert output == (
        "NAME         READY     STATUS    RESTARTS   CPU   MEMORY   PIDS   AGE\n"
        "quickstart   Unknown   Pending   0          -     -        -      5m\n"
        "quickstart   True      Running   2          -     -        -      5m\n"
    )


def test_titles_come_with_the_first_row_when_nothing_is_there(watch: Callable[..., Result], served: ApiStack) -> None:
    done = watch("sb", "-w", "-A", change=served.apply, lines=2)
    assert done.stdout.split()[:3] == ["NAMESPACE", "NAME", "READY"]
    assert "No resources found." in done.stderr


def test_watch_only_selectors_names_and_forms(watch: Callable[..., Result], served: ApiStack) -> None:
    served.apply()
    outcome = watch("sb", "-l", "app=web", "--watch-only", "-o", "name", change=lambda: served.apply(OTHER), lines=1)
    assert outcome.stdout == "sandbox.paddock/other\n"


def test_line_separators_in_values_end_no_event(watch: Callable[..., Result], served: ApiStack) -> None:
    served.apply()
    change = lambda: served.change(annotations={"example.org/note": "a\u2028b\x85c"})  # noqa: E731
    assert watch("sb", "--watch-only", "-o", "name", change=change, lines=1).stdout == "sandbox.paddock/quickstart\n"


def test_several_names_as_json(watch: Callable[..., Result], served: ApiStack) -> None:
    served.apply(f"{QUICKSTART}---\n{OTHER}---\n{OTHER.replace('other', 'third')}")

    def change() -> None:
        served.change("third", labels={"a": "b"})
        served.change("other", labels={"a": "b"})

    form = "jsonpath={.metadata.name} {.metadata.labels}"
    output = watch("sb", "quickstart", "other", "--watch-only", "-o", form, change=change, lines=1).stdout
    name, labels = output.split()
    assert (name, json.loads(labels)) == ("other", {"a": "b"})


def test_one_kind_at_a_time(paddock: Run, served: ApiStack) -> None:
    plurals = [kind.plural for kind in served.services.registry if kind.name != "Sandbox"]
    if plurals:
        done = paddock("get", f"sb,{plurals[0]}", "-w")
        assert (done.exit_code, "several kinds can't be watched" in done.stderr) == (2, True)


def test_a_watch_resumes_where_it_ended(paddock: Run, served: ApiStack) -> None:
    from controller.cli.client import Client
    from controller.cli.objects import watch as watching
    from paddock._client.server import Server

    client = Client(Server("http://paddock", str(served.socket)))
    events: Any = watching.follow(client, "namespaces/default/sandboxes", "0", {"timeoutSeconds": "1"})
    served.apply()
    assert next(events).type == "ADDED"
    late = threading.Timer(1.5, lambda: served.change(labels={"late": "yes"}))
    late.start()
    changed = next(events)
    late.join()
    assert (changed.type, changed.obj["metadata"]["labels"]) == ("MODIFIED", {"late": "yes"})
    events.close()
    client.close()
