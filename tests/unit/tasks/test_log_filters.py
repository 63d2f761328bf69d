"""Two messages of Ray are dropped; all others of the same loggers are not, nor those of other loggers."""

import logging
import subprocess
import sys

import pytest

from ray_multicluster_scheduler.tasks.wire.sessions import NOISE, drop_noise


@pytest.mark.parametrize("name", NOISE)
def test_only_the_message_of_no_use_is_dropped(name: str) -> None:
    drop_noise()
    drop_noise()
    logger = logging.getLogger(name)
    seen: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: seen.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    logger.error(NOISE[name] + " is not the main thread.")
    logger.error("something else")
    logger.removeHandler(handler)
    assert seen == ["something else"]


def test_a_bridge_that_silences_ray_client_silences_nobody_else() -> None:
    program = """
import logging
from ray_multicluster_scheduler.tasks.wire.sessions import silence_ray_client
silence_ray_client()
logging.getLogger("ray.util.client.worker").critical("the session breaks")
logging.getLogger("ray.util.client.logsclient").critical("said by the helper")
logging.getLogger("of.the.user").warning("heard")
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stderr.strip() == "heard"
