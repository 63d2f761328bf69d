"""The event hub and several processes: one hears what another commits; a forked child is refused."""

import subprocess
import sys
from pathlib import Path

from tests.support.builders import NOW, a_spec

from ray_multicluster_scheduler.clock import SystemClock
from ray_multicluster_scheduler.model.job import Target
from ray_multicluster_scheduler.service.events import EventHub
from ray_multicluster_scheduler.store import open_store

ROOT = Path(__file__).parents[2]
#: Long enough that a test which would use it up fails by its own time limit.
FOR_EVER = 3600.0

PRELUDE = """
import os, sys, threading
from pathlib import Path
from ray_multicluster_scheduler.clock import SystemClock
from ray_multicluster_scheduler.errors import StoreError
from ray_multicluster_scheduler.service.events import EventHub
from ray_multicluster_scheduler.store import open_store
from tests.support.builders import NOW, a_spec

store = open_store(Path(sys.argv[1]))
"""


def start(code: str, directory: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", PRELUDE + code, str(directory)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def test_who_waits_is_woken_by_what_another_process_commits(tmp_path: Path) -> None:
    store = open_store(tmp_path, fallback_poll_s=FOR_EVER)
    hub = EventHub(store, SystemClock())
    store.jobs.add([("job", a_spec()), ("other", a_spec())], now=NOW)
    with hub.subscribe(["job"]) as subscription, hub.subscribe(None) as all_events:
        subscription.wait(), all_events.wait()
        stop = 'store.jobs.request_stop(["job"], now=NOW, reason="enough"); store.close()'
        stopping = start(stop, tmp_path)

        job = subscription.wait()["job"]

        assert job is not None
        assert job.target is Target.STOPPED
        all_events.wait()
        assert [told.event.reason for told in hub.kept_after(2) or ()] == ["enough"]
        stopping.communicate()
    assert stopping.returncode == 0
    hub.close()
    store.close()


def test_many_processes_commit_at_once_and_nobody_misses_the_last_of_it(tmp_path: Path) -> None:
    store = open_store(tmp_path, fallback_poll_s=FOR_EVER)
    hub = EventHub(store, SystemClock())
    ids = [f"job-{number}" for number in range(60)]
    store.jobs.add([(each, a_spec()) for each in ids], now=NOW)
    stop_a_third = """
sys.stdin.readline()
for number in range({first}, 60, 3):
    store.jobs.request_stop([f"job-{{number}}"], now=NOW, reason="enough")
store.close()
"""
    with hub.subscribe(ids) as subscription:
        subscription.wait()
        stopping = [start(stop_a_third.format(first=first), tmp_path) for first in range(3)]
        for process in stopping:
            assert process.stdin
            process.stdin.write("go\n")
            process.stdin.flush()
        stopped: set[str] = set()
        while len(stopped) < 60:
            changed = subscription.wait()
            stopped |= {each for each, job in changed.items() if job and job.target is Target.STOPPED}
        for process in stopping:
            process.communicate()
            assert process.returncode == 0
    hub.close()
    store.close()


def test_a_forked_child_is_refused_and_its_parent_goes_on(tmp_path: Path) -> None:
    """The reader does not exist in the child, and its lock may be held for ever."""
    program = start(
        """
hub = EventHub(store, SystemClock())
store.jobs.add([("job", a_spec())], now=NOW)
with hub.subscribe(["job"]) as subscription:
    subscription.wait()
    hub._lock.acquire()
    if os.fork() == 0:
        refused = 0
        for call in (subscription.wait, lambda: hub.subscribe(["job"])):
            try:
                call()
            except StoreError as error:
                refused += "was forked" in str(error)
        subscription.close()
        hub.close()
        os._exit(0 if refused == 2 else 1)
    hub._lock.release()
    _, status = os.wait()
    print(os.waitstatus_to_exitcode(status))
    store.jobs.request_stop(["job"], now=NOW, reason="enough")
    print(subscription.wait()["job"].target.value)
hub.close()
store.close()
""",
        tmp_path,
    )
    out, _ = program.communicate()
    assert out.split() == ["0", "STOPPED"]
