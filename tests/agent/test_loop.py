"""The event loop's timers: cancelled ones neither wake it nor pile up."""

from images.agent.paddock_agent.loop import Loop


def test_timers_run_in_order_and_cancelled_ones_do_not() -> None:
    loop, ran = Loop(), []
    loop.after(0.002, lambda: ran.append("second"))
    loop.after(0.001, lambda: ran.append("first"))
    loop.cancel(loop.after(0.0, lambda: ran.append("cancelled")))
    loop.after(0.003, loop.stop)
    loop.run()
    assert ran == ["first", "second"]


def test_cancelled_timers_do_not_pile_up() -> None:
    loop = Loop()
    loop.after(1, loop.stop)
    for _ in range(10_000):
        loop.cancel(loop.after(300, loop.stop))
    assert len(loop._timers) < 200


def test_a_failing_callback_does_not_end_the_loop(capfd: object) -> None:
    loop, ran = Loop(), []
    loop.after(0.0, lambda: ran.append(1 // 0))
    loop.after(0.001, loop.stop)
    loop.run()
    assert "ZeroDivisionError at test_loop.py:" in capfd.readouterr().err  # type: ignore[attr-defined]
