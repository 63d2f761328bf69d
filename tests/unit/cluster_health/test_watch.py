"""The watch keeps what was last seen of every cluster, and no cluster waits for another."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.clock import ManualClock

from ray_multicluster_scheduler.cluster_health.watch import PROBE_JOB_ID, ClusterWatch, ProbeResult
from ray_multicluster_scheduler.config import Settings
from ray_multicluster_scheduler.errors import ClusterBadAnswer, ClusterUnreachable
from ray_multicluster_scheduler.model.cluster import Health, Node, RemoteVersion, Usage
from ray_multicluster_scheduler.model.execution import AttemptStatus, Inventory, InventoryRow, Sighting

INTERVAL_S = 5.0
REFUSED = ClusterUnreachable("a", "connection refused", refused=True)
HANG = asyncio.Event  # an answer that never comes


def an_attempt() -> Sighting:
    return Sighting(remote_id="j1", status=AttemptStatus.RUNNING)


class ScriptedCluster:
    """All ports of a cluster. Answers with its attributes; an exception is raised, `HANG` never answers."""

    def __init__(self, **answers: Any) -> None:
        self.answers: dict[str, Any] = {
            "version": RemoteVersion(api_version="4", ray_version="2.60.0", session_name="s1"),
            "nodes": (a_node(),),
            "jobs": None,
            "list": Inventory(sightings=(an_attempt(),), remembered=7),
            "usage": Usage(total={"CPU": 4.0}, used={"CPU": 1.0}, pending=()),
            "python": "3.11.7",
            **answers,
        }
        self.probe = self
        self.looks = self.lists = 0
        #: What the list of jobs holds.
        self.rows: list[InventoryRow] = []
        self.open_requests = 0

    async def _answer(self, what: str) -> Any:
        answer = self.answers[what]
        if isinstance(answer, Exception):
            raise answer
        if answer is HANG:
            self.open_requests += 1
            try:
                await asyncio.Event().wait()
            finally:
                self.open_requests -= 1
        if isinstance(answer, asyncio.Event):
            await answer.wait()
            answer = ()
        return answer

    async def version(self) -> Any:
        self.looks += 1
        return await self._answer("version")

    async def nodes(self) -> Any:
        return await self._answer("nodes")

    async def driver(self, job_id: str) -> Any:
        assert job_id == PROBE_JOB_ID
        return await self._answer("jobs")

    async def jobs(self, keep: Callable[[InventoryRow], bool]) -> Any:
        self.lists += 1
        for row in self.rows:
            keep(row)
        return await self._answer("list")

    async def usage(self) -> Any:
        return await self._answer("usage")

    async def python_version(self) -> Any:
        return await self._answer("python")


def a_node(**changes: Any) -> Node:
    plain: dict[str, Any] = {"node_id": "n1", "address": "10.0.0.1", "alive": True, "is_head": True}
    return Node(**{**plain, "resources": {"CPU": 2.0}, **changes})


def watching(
    clock: ManualClock | None = None,
    *,
    deadline_s: float = 60.0,
    jitter: Callable[[], float] = lambda: 0.5,
    lists_jobs: bool = False,
    origin: str | None = None,
    **clusters: ScriptedCluster,
) -> ClusterWatch:
    settings = Settings(probe_interval_s=INTERVAL_S, probe_timeout_s=deadline_s, breaker_failures=3)
    return ClusterWatch(
        clusters,  # type: ignore[arg-type]
        clock=clock or ManualClock(),
        settings=settings,
        jitter=jitter,
        lists_jobs=lists_jobs,
        origin=origin,
    )


async def test_before_the_first_probe_nothing_is_known() -> None:
    watch = watching(a=ScriptedCluster())
    assert watch.snapshots()["a"].health is Health.UNKNOWN
    assert watch.snapshots()["a"].total is None
    assert watch.inventory("a") is None


async def test_a_good_probe_fills_the_snapshot() -> None:
    clock = ManualClock()
    watch = watching(clock, a=ScriptedCluster(list=AssertionError("nobody needs it")))
    seen = await watch.probe("a")
    assert (seen.health, seen.problem) == (Health.HEALTHY, None)
    assert (seen.total, seen.used, seen.pending) == ({"CPU": 4.0}, {"CPU": 1.0}, ())
    assert (seen.ray_version, seen.python_version, seen.session_name) == ("2.60.0", "3.11.7", "s1")
    assert (seen.nodes, seen.latency_s, seen.observed_at) == ((a_node(),), 0.0, clock.now())
    assert watch.inventory("a") is None
    assert watch.snapshots() == {"a": seen}


@pytest.mark.parametrize(
    "answer", [Inventory(sightings=(an_attempt(),), remembered=7), HANG, ClusterBadAnswer("a", "long")]
)
async def test_a_list_of_jobs_is_welcome_where_it_is_shown_but_never_needed(answer: Any) -> None:
    watch = watching(deadline_s=0.2, lists_jobs=True, a=ScriptedCluster(list=answer))
    assert (await watch.probe("a")).health is Health.HEALTHY
    assert watch.inventory("a") == (answer if isinstance(answer, Inventory) else None)


def claiming(claim: str, origin: str = "theirs") -> InventoryRow:
    metadata = {"raymc.origin": origin, "raymc.claim": claim}
    return InventoryRow("j1", AttemptStatus.RUNNING, metadata)


async def test_others_claims_are_read_at_first_then_rarely_and_often_while_there_are_some() -> None:
    clock, cluster = ManualClock(), ScriptedCluster()
    watch = watching(clock, origin="ours", a=cluster)

    async def lists_in(probes: int) -> int:
        before = cluster.lists
        for _ in range(probes):
            clock.advance(INTERVAL_S)
            await watch.probe("a")
        return cluster.lists - before

    cluster.rows = [claiming('{"CPU":9}', origin="ours")]
    assert (await watch.probe("a")).claimed_by_others == {}
    assert (cluster.lists, await lists_in(6)) == (1, 2)
    cluster.rows = [claiming('{"CPU":3}')]
    assert await lists_in(3) == 1
    assert watch.snapshot("a").claimed_by_others == {"CPU": 3.0}
    assert await lists_in(3) == 3
    cluster.rows = []
    assert await lists_in(1) == 1
    assert watch.snapshot("a").claimed_by_others == {}


async def test_claims_that_cannot_be_read_again_are_kept_for_a_while_and_those_of_a_former_head_are_not() -> (
    None
):
    clock, cluster = ManualClock(), ScriptedCluster()
    watch = watching(clock, origin="ours", a=cluster)
    cluster.rows = [claiming('{"CPU":3}')]
    await watch.probe("a")
    cluster.answers["list"] = ClusterBadAnswer("a", "too long")
    clock.advance(INTERVAL_S)
    seen = await watch.probe("a")
    assert (seen.health, seen.claimed_by_others) == (Health.HEALTHY, {"CPU": 3.0})
    lists = cluster.lists
    clock.advance(INTERVAL_S)
    await watch.probe("a")
    assert cluster.lists == lists, "a list that is too long is not tried with each probe"
    clock.advance(100 * INTERVAL_S)
    assert (await watch.probe("a")).claimed_by_others == {}

    watch.note_others("a", {"CPU": 2.0})  # a sweep has more time
    assert (await watch.probe("a")).claimed_by_others == {"CPU": 2.0}
    cluster.answers["version"] = RemoteVersion(api_version="4", ray_version="2.60.0", session_name="s2")
    assert (await watch.probe("a")).claimed_by_others == {}


async def test_without_an_origin_no_list_is_read() -> None:
    cluster = ScriptedCluster()
    await watching(a=cluster).probe("a")
    assert cluster.lists == 0


@pytest.mark.parametrize("needed", ["version", "nodes", "jobs"])
@pytest.mark.parametrize(
    ("trouble", "problem"),
    [
        (HANG, "no answer to nodes and jobs within 0.1 s"),
        (ClusterBadAnswer("a", "an HTML page instead of JSON"), "an HTML page instead of JSON"),
    ],
)
async def test_a_cluster_is_not_healthy_unless_version_nodes_and_jobs_all_answer(
    needed: str, trouble: Any, problem: str
) -> None:
    seen = await watching(deadline_s=0.1, a=ScriptedCluster(**{needed: trouble})).probe("a")
    assert (seen.health, seen.problem) == (Health.UNHEALTHY, problem)
    assert (seen.total, seen.observed_at) == (None, None)


@pytest.mark.parametrize("trouble", [HANG, ClusterBadAnswer("a", "no such page")])
async def test_without_usage_the_use_is_unknown_and_the_totals_come_from_the_living_nodes(
    trouble: Any,
) -> None:
    nodes = (a_node(), a_node(node_id="n2", is_head=False), a_node(node_id="n3", alive=False))
    cluster = ScriptedCluster(usage=trouble, python=trouble, nodes=nodes)
    seen = await watching(deadline_s=0.1, a=cluster).probe("a")
    assert seen.health is Health.HEALTHY
    assert (seen.used, seen.pending, seen.python_version) == (None, None, None)
    assert seen.total == {"CPU": 4.0}


async def test_a_failed_probe_keeps_the_last_known_values_with_their_age() -> None:
    clock, cluster = ManualClock(), ScriptedCluster()
    watch = watching(clock, a=cluster)
    good = await watch.probe("a")
    clock.advance(7)
    cluster.answers["nodes"] = REFUSED
    seen = await watch.probe("a")
    assert (seen.health, seen.problem) == (Health.UNHEALTHY, "connection refused")
    assert (seen.total, seen.used, seen.session_name) == (good.total, good.used, good.session_name)
    assert seen.age_s(clock.now()) == 7
    assert seen.score < good.score


async def test_a_dead_head_is_unhealthy_but_its_nodes_and_jobs_are_news() -> None:
    cluster = ScriptedCluster(nodes=(a_node(alive=False),))
    watch = watching(a=cluster)
    seen = await watch.probe("a")
    assert seen.health is Health.UNHEALTHY
    assert seen.nodes == (a_node(alive=False),)


async def test_nothing_that_was_asked_outlives_its_probe() -> None:
    cluster = ScriptedCluster(nodes=HANG, usage=HANG, jobs=HANG)
    await watching(deadline_s=0.1, a=cluster).probe("a")
    assert cluster.open_requests == 0


async def test_a_hanging_cluster_does_not_hold_up_another_one() -> None:
    stuck, release = ScriptedCluster(), asyncio.Event()
    stuck.answers["nodes"] = release
    watch = watching(stuck=stuck, fine=ScriptedCluster())
    told: asyncio.Queue[str] = asyncio.Queue()
    watch.subscribe(lambda probed: told.put_nowait(probed.snapshot.name))
    step = asyncio.create_task(watch.step())
    assert await told.get() == "fine"
    assert watch.snapshots()["stuck"].health is Health.UNKNOWN
    release.set()
    await step


async def test_a_cluster_that_is_being_probed_is_not_asked_again_by_the_next_round() -> None:
    clock, release = ManualClock(), asyncio.Event()
    stuck, fine = ScriptedCluster(nodes=release), ScriptedCluster()
    watch = watching(clock, stuck=stuck, fine=fine)
    told: asyncio.Queue[str] = asyncio.Queue()
    watch.subscribe(lambda probed: told.put_nowait(probed.snapshot.name))
    first = asyncio.create_task(watch.step())
    await told.get()
    clock.advance(INTERVAL_S)
    await watch.step()
    assert (stuck.looks, fine.looks) == (1, 2)
    release.set()
    await first


async def test_a_second_caller_joins_the_probe_that_is_under_way() -> None:
    release = asyncio.Event()
    cluster = ScriptedCluster(jobs=release)
    watch = watching(a=cluster)
    both = [asyncio.create_task(watch.probe("a")) for _ in range(2)]
    await asyncio.sleep(0)
    release.set()
    one, other = await asyncio.gather(*both)
    assert one is other
    assert cluster.looks == 1


async def test_a_refresh_asks_only_what_the_cluster_uses() -> None:
    clock, cluster = ManualClock(), ScriptedCluster()
    watch = watching(clock, a=cluster)
    before = await watch.probe("a")
    told: list[ProbeResult] = []
    watch.subscribe(told.append)
    clock.advance(1)
    cluster.answers |= {"usage": Usage(total={"CPU": 4.0}, used={"CPU": 3.0}, pending=()), "jobs": REFUSED}
    await watch.refresh("a")
    after = watch.snapshots()["a"]
    assert (after.used, after.observed_at) == ({"CPU": 3.0}, (before.observed_at or 0.0) + 1)
    assert (cluster.looks, after.health) == (1, before.health)
    assert [(each.snapshot, each.changed) for each in told] == [(after, False)]


async def test_a_bug_that_is_reported_during_a_refresh_is_not_forgotten_with_it() -> None:
    cluster = ScriptedCluster()
    watch = watching(a=cluster)
    await watch.probe("a")
    report, usage = watch.reporter("a", "worker"), cluster.usage

    async def meanwhile() -> Any:
        report("a bug in our own code")
        return await usage()

    cluster.usage = meanwhile  # type: ignore[method-assign]
    await watch.refresh("a")
    seen = watch.snapshot("a")
    assert (seen.health, seen.problem) == (Health.UNHEALTHY, "a bug in our own code")


@pytest.mark.parametrize("answer", [REFUSED, HANG])
async def test_a_refresh_without_an_answer_changes_nothing(answer: object) -> None:
    cluster = ScriptedCluster()
    watch = watching(deadline_s=0.1, a=cluster)
    before = await watch.probe("a")
    cluster.answers["usage"] = answer
    await watch.refresh("a")
    assert watch.snapshots()["a"] == before


async def test_the_probe_that_is_under_way_is_refresh_enough_but_a_refresh_is_no_probe() -> None:
    release = asyncio.Event()
    cluster = ScriptedCluster(jobs=release)
    watch = watching(a=cluster)
    probing, refreshing = asyncio.create_task(watch.probe("a")), asyncio.create_task(watch.refresh("a"))
    await asyncio.sleep(0)
    cluster.answers["usage"] = REFUSED
    release.set()
    await asyncio.gather(probing, refreshing)
    await watch.refresh("a")
    await watch.probe("a")
    assert cluster.looks == 2


async def test_a_step_probes_only_what_is_due() -> None:
    clock, cluster = ManualClock(), ScriptedCluster()
    watch = watching(clock, a=cluster)
    await watch.step()
    clock.advance(INTERVAL_S - 0.1)
    await watch.step()
    assert cluster.looks == 1
    clock.advance(0.1)
    await watch.step()
    assert cluster.looks == 2


async def test_a_dead_cluster_is_asked_ever_more_rarely_and_comes_back_after_two_good_probes() -> None:
    clock, cluster = ManualClock(), ScriptedCluster(nodes=REFUSED)
    watch = watching(clock, jitter=lambda: 1.0, a=cluster)
    asked_at: list[float] = []
    watch.subscribe(lambda _: asked_at.append(clock.monotonic()))
    for _ in range(120):
        await watch.step()
        clock.advance(1)
    assert asked_at == [0, 5, 10, 20, 40, 80]
    cluster.answers["nodes"] = (a_node(),)
    await watch.probe("a")
    assert watch.snapshots()["a"].health is Health.UNHEALTHY
    assert (await watch.probe("a")).health is Health.HEALTHY


async def test_listeners_hear_of_every_probe_and_of_what_changed() -> None:
    cluster, heard = ScriptedCluster(), list[ProbeResult]()
    watch = watching(a=cluster)
    watch.subscribe(heard.append)
    changes: list[dict[str, Any]] = [
        {},  # the first answer: health and totals are new
        {"jobs": ()},  # whatever is said of a job that is nobody's
        {"version": RemoteVersion(api_version="4", ray_version="2.60.0", session_name="s2")},
        {"usage": Usage(total={"CPU": 8.0})},
        {"nodes": REFUSED},
    ]
    for change in changes:
        cluster.answers |= change
        await watch.probe("a")
    assert [probed.changed for probed in heard] == [True, False, True, True, True]


async def test_the_first_look_is_over_when_every_cluster_was_looked_at() -> None:
    release = asyncio.Event()
    watch = watching(
        slow=ScriptedCluster(nodes=release), fine=ScriptedCluster(), dead=ScriptedCluster(nodes=REFUSED)
    )
    told: asyncio.Queue[str] = asyncio.Queue()
    watch.subscribe(lambda probed: told.put_nowait(probed.snapshot.name))
    look = asyncio.create_task(watch.first_look())
    assert {await told.get(), await told.get()} == {"fine", "dead"}
    assert {name for name, seen in watch.snapshots().items() if seen.awaited} == {"slow"}
    assert not look.done()
    release.set()
    await look
    assert not any(seen.awaited for seen in watch.snapshots().values())
    assert watch.snapshots()["slow"].observed_at is not None


async def test_the_first_look_goes_on_without_a_cluster_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ray_multicluster_scheduler.cluster_health.watch.FIRST_LOOK_S", 0.05)
    stuck = ScriptedCluster(nodes=HANG)
    watch = watching(stuck=stuck, fine=ScriptedCluster())
    await watch.first_look()
    assert {name: (seen.health, seen.awaited) for name, seen in watch.snapshots().items()} == {
        "stuck": (Health.UNKNOWN, False),
        "fine": (Health.HEALTHY, False),
    }
    assert stuck.open_requests == 0


async def test_what_was_seen_long_ago_is_looked_at_again_before_it_counts() -> None:
    clock, release = ManualClock(), asyncio.Event()
    cluster = ScriptedCluster()
    watch = watching(clock, a=cluster)
    before = await watch.probe("a")
    watch.expect_first_look()
    assert watch.snapshots()["a"] == before  # that is fresh
    clock.advance(INTERVAL_S)
    cluster.answers["jobs"] = release
    look = asyncio.create_task(watch.first_look())
    await asyncio.sleep(0)
    seen = watch.snapshots()["a"]
    assert (seen.health, seen.awaited, seen.total) == (Health.UNKNOWN, True, before.total)
    release.set()
    await look
    assert watch.snapshots()["a"].health is Health.HEALTHY


async def test_a_cluster_without_a_living_node_is_as_large_as_it_was() -> None:
    cluster = ScriptedCluster(usage=Usage(total={}, used={}, pending=()), nodes=(a_node(alive=False),))
    watch = watching(a=cluster)
    assert (await watch.probe("a")).total is None  # unknown, which is not nothing
    cluster.answers |= {"usage": Usage(total={"CPU": 4.0}), "nodes": (a_node(),)}
    assert (await watch.probe("a")).total == {"CPU": 4.0}
    cluster.answers |= {"usage": Usage(total={}, used={}, pending=()), "nodes": (a_node(alive=False),)}
    assert (await watch.probe("a")).total == {"CPU": 4.0}


async def test_a_listener_may_leave_while_it_is_called() -> None:
    watch, heard = watching(a=ScriptedCluster()), list[str]()
    leave = watch.subscribe(lambda _: (heard.append("one"), leave()))  # type: ignore[func-returns-value]
    watch.subscribe(lambda _: heard.append("other"))
    await watch.probe("a")
    assert heard == ["one", "other"]


async def test_a_listener_can_leave() -> None:
    watch, heard = watching(a=ScriptedCluster()), list[ProbeResult]()
    leave = watch.subscribe(heard.append)
    await watch.probe("a")
    leave()
    await watch.probe("a")
    assert len(heard) == 1


async def test_run_follows_every_cluster_until_cancelled() -> None:
    clusters = {
        "a": ScriptedCluster(),
        "b": ScriptedCluster(nodes=HANG),
        "c": ScriptedCluster(version=REFUSED),
    }
    watch = watching(deadline_s=0.1, **clusters)
    told: asyncio.Queue[str] = asyncio.Queue()
    watch.subscribe(lambda probed: told.put_nowait(probed.snapshot.name))
    running = asyncio.create_task(watch.run())
    assert {await told.get() for _ in clusters} == set(clusters)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert clusters["b"].open_requests == 0


async def test_a_bug_with_one_cluster_is_loud_and_concerns_no_other(caplog: pytest.LogCaptureFixture) -> None:
    cluster = ScriptedCluster(nodes=KeyError("nodeId"))
    watch = watching(a=cluster, b=ScriptedCluster())
    for _ in range(3):
        await watch.probe("a")
    await watch.probe("b")
    seen = watch.snapshots()
    assert (seen["a"].health, seen["b"].health) == (Health.UNHEALTHY, Health.HEALTHY)
    assert "KeyError" in (seen["a"].problem or "")
    assert [record.exc_info is not None for record in caplog.records] == [True]
    cluster.answers["nodes"] = (a_node(),)
    assert (await watch.probe("a")).health is Health.HEALTHY
