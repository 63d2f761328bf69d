"""A store tells how long it takes to whoever wants to know."""

from tests.support.builders import NOW, a_spec

from ray_multicluster_scheduler.store import open_memory_store


def test_reads_writes_and_commits_are_told() -> None:
    store, told = open_memory_store(), []
    store.tell_times(lambda kind, seconds: told.append((kind, seconds >= 0)))

    store.jobs.add([("a", a_spec())], now=NOW)
    store.jobs.get("a")

    assert told == [("commit", True), ("write", True), ("read", True)]
