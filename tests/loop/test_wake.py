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
