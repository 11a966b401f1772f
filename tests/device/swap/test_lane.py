"""One after the other, and what has not started can be called off."""

from functools import partial
from threading import Event, Thread

from lowtide.device.swap.lane import Cancelled, Lane


def test_first_in_first_out() -> None:
    lane, done = Lane(), list[int]()
    transfers = [lane.put(partial(done.append, number)) for number in range(100)]
    transfers[-1].wait()
    assert done == list(range(100))
    lane.close()


def test_cancel_waits_for_what_runs_and_calls_off_the_rest() -> None:
    lane, running, gate, done = Lane(), Event(), Event(), list[str]()

    def first() -> None:
        running.set()
        assert gate.wait(60)
        done.append("first")

    started = lane.put(first)
    assert running.wait(60)
    rest = [lane.put(lambda: done.append("rest")) for _ in range(5)]
    canceller = Thread(target=lane.cancel)
    canceller.start()
    for transfer in rest:
        assert transfer._done.wait(30)
        assert isinstance(transfer.failure, Cancelled)
    assert canceller.is_alive()
    gate.set()
    canceller.join()
    assert done == ["first"]
    assert started.failure is None
    lane.put(lambda: done.append("later")).wait()
    assert done == ["first", "later"]
    lane.close()


def test_the_thread_may_close_its_own_lane() -> None:
    """Garbage is collected in any thread: here the lane's own finds the space that nobody holds any more."""
    lane = Lane()
    transfer = lane.put(lane.close)
    transfer.wait()
    assert transfer.failure is None
