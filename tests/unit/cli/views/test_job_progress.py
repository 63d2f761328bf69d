"""Ctrl-C while the terminal is being changed."""

import signal
from collections.abc import Iterator

import pytest

from ray_multicluster_scheduler.cli.follow_jobs import uninterrupted


@pytest.fixture(autouse=True)
def _usual_handler() -> Iterator[None]:
    """Begin with Python's own handler: a test before this one, with its own loop, may have left another."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_waits_until_the_terminal_is_in_order_and_comes_once() -> None:
    steps = []
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - the point is where in the block it comes
        with uninterrupted():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            steps.append("in order again")
        steps.append("never reached")
    assert steps == ["in order again"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
