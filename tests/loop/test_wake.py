"""Wake-ups of the reconcile loop: those of use come together, and delay no other."""

import threading

from controller.loop.wake import LoopWaker


def test_wakes_are_collected_and_cleared() -> None:
    waker = LoopWaker()
    for wake in (waker.wake, waker.wake_soon, waker.wake_now):
        wake()
        waker.wake_soon()
        assert waker.wait(0)
        wake()  # during the pass's beginning: served by it
        waker.gather(0.001)
        assert not waker.wait(0)


def test_a_pass_that_is_waited_for_ends_the_collecting() -> None:
    waker, gathered = LoopWaker(), threading.Event()
    waker.wake_soon()
    assert waker.wait(0)

    def gather() -> None:
        waker.gather(3600)  # of wakes as soon as possible
        gathered.set()

    thread = threading.Thread(target=gather)
    thread.start()
    waker.wake_now()
    assert gathered.wait(60)
    thread.join()


def test_passes_keep_apart_while_writes_crowd() -> None:
    """One write after another, each after the pass before, waits for nothing."""
    now, pauses = [100.0], list[float]()

    def pause(seconds: float) -> None:
        pauses.append(round(seconds, 3))
        now[0] += seconds

    waker = LoopWaker(ticks=lambda: now[0], pause=pause)
    for writes in (1, 1, 2, 1, 3):
        for _ in range(writes):
            waker.wake_for_write()
        assert waker.wait(0)
        waker.gather(3600)
        now[0] += 0.01
    assert pauses == [0.02, 0.02, 0.02], "from the pass on that had two writes to serve"
    now[0] += 1
    waker.wake_for_write()
    waker.gather(3600)
    now[0] += 0.01
    waker.wake_for_write()
    waker.gather(3600)
    assert len(pauses) == 3, "they come one by one again"
