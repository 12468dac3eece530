"""What is not secured is killed, told, and stays down until somebody changes something."""

from controller.kinds.observed.observed import State
from controller.policy.levels.levels import Policy
from tests.plan.history import History


def state(history: History) -> State:
    return history.engine.container(history.container_name("web")).state


def test_a_sandbox_is_secured_before_it_is_ready(history: History) -> None:
    history.apply("web")
    while history.condition("web", "Ready") != "True Running":
        history.run_pass()
    assert history.condition("web", "Secured") == "True Attested"


def test_one_that_is_not_secured_is_never_ready_and_stays_down(history: History) -> None:
    history.engine.hostile = {"seccomp": 0}
    history.apply("web")
    history.settle()
    assert state(history) is State.EXITED
    assert history.condition("web", "Ready") == "False NotSecured"
    assert history.condition("web", "Secured") == "False NotSecured"
    starts = sum(str(entry).startswith("start ") for entry in history.engine.calls)
    history.clock.advance(86400)
    history.settle()
    history.daemon()
    history.settle()
    assert sum(str(entry).startswith("start ") for entry in history.engine.calls) == starts == 1
    assert history.status("web")["lastTermination"]["reason"] == "Killed"
    events = [event for event in history.events if event.reason == "NotSecured"]
    assert [event.message for event in events] == ["seccomp: found none, wanted filter"]


def test_a_change_of_the_spec_is_a_new_try(history: History) -> None:
    history.engine.hostile = {"seccomp": 0}
    history.apply("web")
    history.settle()
    history.engine.hostile = {}
    history.apply("web", template={"env": [{"name": "AGAIN"}]})
    history.settle()
    assert history.condition("web", "Ready") == "True Running"
    assert history.condition("web", "Secured") == "True Attested"


def test_who_only_wants_to_be_told_is_only_told(history: History) -> None:
    history.policy = Policy(report_only=True)
    history.engine.hostile = {"groups": (0,)}
    history.apply("web")
    history.settle()
    assert state(history) is State.RUNNING
    assert history.condition("web", "Ready") == "True Running"
    assert history.condition("web", "Secured") == "False NotSecured"


def test_a_network_by_hand_is_taken_off_and_nothing_is_killed(history: History) -> None:
    history.apply("web")
    history.settle()
    history.engine.connect(history.container_name("web"), "bridge")
    history.settle()
    assert state(history) is State.RUNNING
    assert history.condition("web", "Secured") == "True Attested"
