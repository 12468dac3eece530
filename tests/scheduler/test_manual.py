"""Scheduler `manual`: it believes what a person wrote, and chooses nothing."""

from controller.ports.scheduler import NoHost, Placed, Placement, Suspended
from controller.scheduler.manual import ManualScheduler


def test_only_a_person_names_a_host() -> None:
    manual = ManualScheduler()
    unbound, bound = Placement("u", 1, 1 << 20, 100), Placement("u", 1, 1 << 20, 100, host="two")
    answer = manual.place(unbound)
    assert isinstance(answer, NoHost)
    assert "spec.host" in answer.message
    assert manual.place(bound) == Placed("two")
    assert manual.place(Placement("u", 1, 1 << 20, 100, host="two", running=False)) == Suspended("two")
    assert manual.pin("u", 1, "two") == Placed("two")
    manual.release("u")
    assert (manual.hosts(), manual.list()) == ((), ())
