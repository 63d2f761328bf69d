"""Several real processes on one store: one creates it, all hear each other, a killed one harms nobody."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.builders import NOW, a_spec
from tests.support.leader import Leader

from ray_multicluster_scheduler.errors import LeaseLost
from ray_multicluster_scheduler.model.states import JobState, may_move
from ray_multicluster_scheduler.store import Store, open_store

S = JobState
#: Long enough that a test which would use it up fails by its own time limit.
FOR_EVER = 3600.0

PRELUDE = """
import sys
from pathlib import Path
from ray_multicluster_scheduler.store import open_store
from tests.support.builders import NOW, a_spec
from tests.support.leader import Leader, S

def say(word):
    print(word, flush=True)

directory = Path(sys.argv[1])
"""

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def start(directory: Path) -> Iterator[Start]:
    """Run Python code in a process of its own, which ends with the test."""
    started: list[subprocess.Popen[str]] = []

    def run(code: str, *arguments: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + code, str(directory), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def hear(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def tell(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def finish(process: "subprocess.Popen[str]") -> list[str]:
    out, _ = process.communicate()
    assert process.returncode == 0
    return out.split()


def check_consistent(store: Store) -> None:
    """Every job is where its events say, and has exactly the attempts that it should have."""
    for job in store.jobs.list():
        events = store.history.events(job.submission_id)
        assert events[-1].new is job.state
        assert all(
            event.old is None or event.old is event.new or may_move(event.old, event.new) for event in events
        )
        attempts = store.history.attempts(job.submission_id)
        assert [attempt.number for attempt in attempts] == list(range(1, job.attempt + 1))


def test_processes_that_open_a_fresh_store_at_once_share_it(start: Start) -> None:
    openers = [
        start("sys.stdin.readline(); store = open_store(directory); say(store.store_id); store.close()")
        for _ in range(3)
    ]
    for opener in openers:
        tell(opener)

    said = [finish(opener) for opener in openers]

    assert len(said[0]) == 1
    assert all(words == said[0] for words in said)


def test_a_store_that_is_closed_and_opened_at_once_is_not_taken_for_damaged(start: Start) -> None:
    openers = [
        start("sys.stdin.readline()\nfor _ in range(40): open_store(directory).close()") for _ in range(3)
    ]
    for opener in openers:
        tell(opener)

    assert [finish(opener) for opener in openers] == [[], [], []]


def test_a_program_forks_while_it_writes(start: Start) -> None:
    program = start(
        """
import os, threading
store = open_store(directory)
done = threading.Event()
closed, closing = os.pipe()

def write():
    number = 0
    while not done.is_set():
        store.jobs.add([(f"parent-{number}", a_spec())], now=NOW)
        store.jobs.list(limit=5)
        number += 1

def in_child(name):
    os.close(closing)
    own = open_store(directory)
    own.jobs.add([(name, a_spec())], now=NOW)
    os.read(closed, 1)  # returns when the parent has closed the store
    own.jobs.add([(f"{name}-again", a_spec())], now=NOW)
    own.close()

threads = [threading.Thread(target=write) for _ in range(2)]
for thread in threads:
    thread.start()
children = []
for number in range(10):
    child = os.fork()
    if child == 0:
        code = 1
        try:
            in_child(f"child-{number}")
            code = 0
        finally:
            os._exit(code)
    children.append(child)
done.set()
for thread in threads:
    thread.join()
store.close()
os.close(closing)
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
say(codes == [0] * 10)
store = open_store(directory)
say(sum(job.submission_id.startswith("child-") for job in store.jobs.list(limit=None)))
"""
    )
    assert finish(program) == ["True", "20"]


def test_a_notification_wakes_another_process_without_the_fallback(start: Start, directory: Path) -> None:
    store = open_store(directory, fallback_poll_s=FOR_EVER)
    waiter = start(
        f"""
store = open_store(directory, fallback_poll_s={FOR_EVER})
mark = store.changes.wait(0, timeout_s=0)
say("ready")
while not (jobs := store.jobs.list()):
    mark = store.changes.wait(mark, timeout_s={FOR_EVER})
say(jobs[0].submission_id)
store.close()
"""
    )
    assert hear(waiter) == "ready"

    store.jobs.add([("news", a_spec())], now=NOW)

    assert finish(waiter) == ["news"]
    store.close()


def test_a_subscriber_hears_another_process(start: Start, directory: Path) -> None:
    other = start(
        """
store = open_store(directory)
sys.stdin.readline()
store.jobs.add([("news", a_spec())], now=NOW)
store.close()
"""
    )
    store = open_store(directory, fallback_poll_s=FOR_EVER)
    heard = threading.Event()
    store.changes.subscribe(heard.set)

    tell(other)
    heard.wait()

    assert store.jobs.get("news").submission_id == "news"
    store.close()


def test_a_change_is_noticed_where_no_socket_can_be(start: Start, directory: Path) -> None:
    directory.mkdir()
    (directory / "bells").write_text("a file where the sockets should be")
    waiter = start(
        f"""
store = open_store(directory, fallback_poll_s=0.05)
mark = store.changes.wait(0, timeout_s=0)
say("ready")
say(store.changes.wait(mark, timeout_s={FOR_EVER}) > mark)
store.close()
"""
    )
    assert hear(waiter) == "ready"

    store = open_store(directory)
    store.jobs.add([("news", a_spec())], now=NOW)

    assert finish(waiter) == ["True"]
    store.close()


def test_the_socket_of_a_killed_process_is_cleared_away(start: Start, directory: Path) -> None:
    waiter = start("store = open_store(directory); store.changes.wait(0, timeout_s=0); say('ready'); input()")
    assert hear(waiter) == "ready"
    assert len(list((directory / "bells").iterdir())) == 1
    waiter.kill()
    waiter.wait()

    store = open_store(directory)
    store.jobs.add([("job", a_spec())], now=NOW)

    assert list((directory / "bells").iterdir()) == []
    store.close()


def test_two_processes_that_write_at_once_lose_nothing(start: Start, directory: Path) -> None:
    code = """
store = open_store(directory)
sys.stdin.readline()
for number in range(40):
    store.jobs.add([(f"{sys.argv[2]}-{number}", a_spec())], now=NOW)
store.close()
"""
    writers = [start(code, name) for name in ("one", "two")]
    for writer in writers:
        tell(writer)
    for writer in writers:
        finish(writer)

    store = open_store(directory)
    jobs = store.jobs.list()
    assert {job.submission_id for job in jobs} == {f"{w}-{n}" for w in ("one", "two") for n in range(40)}
    assert len({job.seq for job in jobs}) == 80
    store.close()


@pytest.mark.parametrize("after", [1, 7, 25])
def test_a_process_killed_while_writing_leaves_a_consistent_store(
    start: Start, directory: Path, after: int
) -> None:
    writer = start(
        """
leader = Leader(open_store(directory), "writer")
number = 0
while True:
    number += 1
    leader.add(f"job-{number}", S.RUNNING)
    say(f"job-{number}")
    leader.move(f"job-{number}", S.QUEUED)
"""
    )
    acknowledged = [hear(writer) for _ in range(after)]

    os.kill(writer.pid, signal.SIGKILL)
    writer.wait()

    store = open_store(directory)
    assert set(acknowledged) <= {job.submission_id for job in store.jobs.list()}
    check_consistent(store)
    store.jobs.add([("next", a_spec())], now=NOW)
    assert store.jobs.get("next").state is S.QUEUED
    store.close()


def test_the_lease_of_a_killed_leader_is_free_at_once(start: Start, directory: Path) -> None:
    first = start("say(Leader(open_store(directory), 'first').lease.epoch); input()")
    epoch = int(hear(first))
    store = open_store(directory)
    leader = store.leases.current(now=NOW)
    assert leader is not None
    assert leader.holder == "first"
    assert store.leases.acquire("second", ttl_s=10.0, now=NOW) is None  # it lives
    first.kill()
    first.wait()

    assert store.leases.current(now=NOW) is None  # nobody is told that a dead process leads
    taken = store.leases.acquire("second", ttl_s=10.0, now=NOW)

    assert taken is not None
    assert taken.epoch > epoch
    assert store.leases.current(now=NOW) == taken
    store.close()


def test_a_child_that_was_forked_does_not_keep_the_lease_of_its_killed_parent(
    start: Start, directory: Path
) -> None:
    parent = start(
        """
import os
leader = Leader(open_store(directory), "parent")
if os.fork() == 0:
    say(os.getpid())
    sys.stdin.readline()
    os._exit(0)
sys.stdin.readline()
"""
    )
    child = int(hear(parent))
    parent.kill()
    parent.wait()
    os.kill(child, 0)  # it is still there

    store = open_store(directory)

    assert store.leases.current(now=NOW) is None
    assert store.leases.acquire("next", ttl_s=10.0, now=NOW) is not None
    os.kill(child, signal.SIGKILL)
    store.close()


def test_files_of_dead_leaders_do_not_pile_up(start: Start, directory: Path) -> None:
    for number in range(3):
        leader = start(f"say(Leader(open_store(directory), 'leader-{number}').lease.epoch); input()")
        hear(leader)
        leader.kill()
        leader.wait()
    store = open_store(directory)

    assert store.leases.acquire("next", ttl_s=10.0, now=NOW) is not None

    assert len(list((directory / "holders").iterdir())) == 1
    store.close()


def test_a_leader_that_was_paused_too_long_can_write_no_more(start: Start, directory: Path) -> None:
    paused = start(
        """
from ray_multicluster_scheduler.errors import LeaseLost
leader = Leader(open_store(directory), "paused")
leader.add("job", S.RUNNING)
say("ready")
sys.stdin.readline()
try:
    leader.move("job", S.FAILED)
except LeaseLost:
    say("LeaseLost")
leader.store.close()
"""
    )
    assert hear(paused) == "ready"
    store = open_store(directory)
    assert store.leases.acquire("new", ttl_s=10.0, now=NOW + 3600) is not None

    tell(paused)

    assert finish(paused) == ["LeaseLost"]
    assert store.jobs.get("job").state is S.RUNNING
    with pytest.raises(LeaseLost):
        Leader.apply_as(store, 1, "job", S.FAILED)
    store.close()
