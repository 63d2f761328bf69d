"""Every check of the doctor has its verdict, and every problem says what to do."""

from typing import Any

import pytest
from tests.support.builders import a_cluster, a_snapshot

from ray_multicluster_scheduler.cluster_health.diagnosis import (
    Check,
    Evidence,
    PortState,
    Verdict,
    Versions,
    diagnose,
)
from ray_multicluster_scheduler.errors import (
    ClusterAuthFailed,
    ClusterBadAnswer,
    ClusterError,
    ClusterRefused,
    ClusterTimeout,
    ClusterUnreachable,
)
from ray_multicluster_scheduler.model.cluster import ClusterSnapshot, Health, RemoteVersion

VERSION = RemoteVersion(api_version="4", ray_version="2.60.0", session_name="s")
WANTS_TOKEN = ClusterAuthFailed("a", "it wants a token")
REFUSED = ClusterUnreachable("a", "connection refused at http://127.0.0.1:8265", refused=True)
FAILURES = [
    REFUSED,
    ClusterUnreachable("a", "no route"),
    ClusterTimeout("a", "no answer"),
    ClusterBadAnswer("a", "HTML"),
    ClusterRefused("a", "404", status=404),
]


def evidence(**changes: Any) -> Evidence:
    """A healthy local cluster with our own versions."""
    fields: dict[str, Any] = {
        "spec": a_cluster(),
        "addresses": {"127.0.0.1": ("127.0.0.1",)},
        "version": VERSION,
        "anonymous": VERSION,
        "token_set": False,
        "snapshot": a_snapshot(),
        "jobs_listed": 3,
        "dashboard_port": PortState.OPEN,
        "client_port": PortState.OPEN,
        "lost_after_s": 90.0,
        "ours": Versions(ray="2.60.0", python="3.12.9"),
    }
    return Evidence(**{**fields, **changes})


def check(name: str, **changes: Any) -> Check:
    return next(found for found in diagnose(evidence(**changes)) if found.name == name)


def test_a_healthy_local_cluster_has_no_problem() -> None:
    verdicts = {found.name: found.verdict for found in diagnose(evidence())}
    assert verdicts.pop("token") is Verdict.NOTE
    assert set(verdicts.values()) == {Verdict.OK}


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: type(failure).__name__)
def test_a_dashboard_that_does_not_answer_is_the_problem_and_what_needs_it_is_skipped(
    failure: ClusterError,
) -> None:
    seen = evidence(version=failure, anonymous=failure, snapshot=ClusterSnapshot(name="a"), jobs_listed=None)
    found = {check.name: check for check in diagnose(seen)}
    assert (found["dashboard"].verdict, found["dashboard"].says) == (Verdict.PROBLEM, failure.detail)
    for name in ("token", "Ray version", "nodes and jobs", "tasks and actors", "security"):
        assert found[name].verdict is Verdict.SKIPPED, name


def test_a_refused_dashboard_is_advised_to_listen_on_the_network() -> None:
    assert "--dashboard-host" in check("dashboard", version=REFUSED).advice


def test_an_address_that_does_not_resolve_is_named() -> None:
    found = check("address", addresses={"123.456.789.0": ()})
    assert found.verdict is Verdict.PROBLEM
    assert "'123.456.789.0'" in found.says
    assert "head_address" in found.advice


@pytest.mark.parametrize(
    ("ray", "rest", "verdict"),
    [
        ("2.9.0", "4", Verdict.OK),
        ("3.0.0.dev0", "4", Verdict.OK),
        ("2.8.1", "4", Verdict.PROBLEM),
        ("2.60.0", "0", Verdict.PROBLEM),
        ("{{RAY_VERSION}}", "4", Verdict.NOTE),
    ],
)
def test_ray_must_be_new_enough(ray: str, rest: str, verdict: Verdict) -> None:
    version = RemoteVersion(api_version=rest, ray_version=ray)
    assert check("Ray version", version=version).verdict is verdict


def test_a_token_that_is_missing_or_wrong_is_a_problem_though_the_dashboard_answers() -> None:
    seen = {"version": WANTS_TOKEN, "anonymous": WANTS_TOKEN}
    assert check("token", **seen).verdict is Verdict.PROBLEM
    assert check("dashboard", **seen).verdict is Verdict.OK


def test_a_token_is_right_only_when_the_cluster_refuses_to_answer_without_it() -> None:
    spec = a_cluster(auth_token_env="TOKEN_A")
    assert check("token", spec=spec, token_set=True, anonymous=WANTS_TOKEN).verdict is Verdict.OK
    assert check("token", spec=spec, token_set=True, anonymous=VERSION).verdict is Verdict.NOTE


def test_a_variable_without_a_value_is_worth_a_note_even_when_no_token_is_needed() -> None:
    found = check("token", spec=a_cluster(auth_token_env="TOKEN_A"))
    assert (found.verdict, "TOKEN_A is not set" in found.says) == (Verdict.NOTE, True)


def test_a_dashboard_that_answers_for_a_dead_cluster_does_not_pass() -> None:
    snapshot = a_snapshot(health=Health.UNHEALTHY, problem="no answer within 5 s: nodes, job list")
    found = check("nodes and jobs", snapshot=snapshot)
    assert (found.verdict, found.says) == (Verdict.PROBLEM, "no answer within 5 s: nodes, job list")


@pytest.mark.parametrize(
    ("ray", "python", "verdict"),
    [
        ("2.60.0", "3.12.3", Verdict.OK),
        ("2.60.0", "3.11.7", Verdict.NOTE),
        ("2.9.0", "3.12.3", Verdict.NOTE),
        ("2.60.0", None, Verdict.NOTE),
    ],
)
def test_other_versions_are_a_note_because_jobs_work_all_the_same(
    ray: str, python: str | None, verdict: Verdict
) -> None:
    found = check("tasks and actors", snapshot=a_snapshot(ray_version=ray, python_version=python))
    assert found.verdict is verdict
    assert (verdict is Verdict.OK) or "jobs work" in found.advice


@pytest.mark.parametrize("state", [PortState.REFUSED, PortState.SILENT])
def test_a_closed_client_port_is_a_problem_for_tasks_and_actors(state: PortState) -> None:
    found = check("Ray Client", client_port=state)
    assert found.verdict is Verdict.PROBLEM
    assert "127.0.0.1:10001" in found.says
    assert "jobs work" not in found.advice


OPEN, TUNNEL = PortState.OPEN, PortState.FORWARDED


@pytest.mark.parametrize(
    ("dashboard", "client", "says", "advice"),
    [
        (OPEN, OPEN, "its jobs are started elsewhere after 90 s", ""),
        (OPEN, PortState.REFUSED, "its jobs wait for it: 127.0.0.1:10001 is not open", "open that port"),
        (OPEN, PortState.SILENT, "its jobs wait for it: 127.0.0.1:10001 is not open", "open that port"),
        (TUNNEL, OPEN, "its jobs wait for it: a tunnel", "set `dashboard` to an address of the head itself"),
        (OPEN, TUNNEL, "its jobs wait for it: a tunnel", "set `head_address` to an address"),
        (TUNNEL, TUNNEL, "its jobs wait for it: a tunnel", "set `dashboard` and `head_address` to"),
        (TUNNEL, PortState.REFUSED, "its jobs wait for it: a tunnel", "set `dashboard` to"),
    ],
)
def test_it_is_told_what_becomes_of_the_jobs_of_a_head_that_dies(
    dashboard: PortState, client: PortState, says: str, advice: str
) -> None:
    found = check("failover", dashboard_port=dashboard, client_port=client)
    assert says in found.says
    assert advice in found.advice
    assert (found.verdict is Verdict.OK) == (not advice)


def test_an_environment_that_ray_would_refuse_is_a_problem() -> None:
    found = check("environment", spec=a_cluster(runtime_env={"conda": "ts", "uv": ["torch"]}))
    assert found.verdict is Verdict.PROBLEM


def test_a_ray_that_the_clusters_own_environment_pins_must_be_its_own() -> None:
    found = check("environment", spec=a_cluster(runtime_env={"pip": ["ray==2.9.0"]}))
    assert found.verdict is Verdict.PROBLEM
    assert "asks for ray==2.9.0" in found.says


def test_a_conda_environment_by_name_cannot_be_checked_and_says_so() -> None:
    found = check("environment", spec=a_cluster(runtime_env={"conda": "ts"}))
    assert (found.verdict, "cannot be checked" in found.says) == (Verdict.NOTE, True)


@pytest.mark.parametrize("ship_package", [True, False])
def test_a_checkout_on_pythonpath_that_may_hold_the_older_package_is_named(*, ship_package: bool) -> None:
    path = "/home/zorro/project/pycharm/tools:/home/zorro/project/pycharm/ray_multicluster_scheduler"
    spec = a_cluster(runtime_env={"env_vars": {"PYTHONPATH": path}}, ship_package=ship_package)
    found = check("this package", spec=spec)
    assert found.verdict is (Verdict.NOTE if ship_package else Verdict.PROBLEM)
    assert "/home/zorro/project/pycharm/ray_multicluster_scheduler" in found.says
    assert "tools" not in found.says


def test_limits_below_what_the_cluster_has_are_a_problem() -> None:
    found = check("max_resources", spec=a_cluster(max_resources={"CPU": 2.0, "GPU": 1.0}))
    assert found.verdict is Verdict.PROBLEM
    assert (found.says, "autoscaler" in found.advice) == ("2 CPU at most, but the cluster has 4 CPU", True)


def test_limits_above_what_the_cluster_has_are_fine_and_without_limits_there_is_no_check() -> None:
    assert check("max_resources", spec=a_cluster(max_resources={"CPU": 64.0})).verdict is Verdict.OK
    assert "max_resources" not in {found.name for found in diagnose(evidence())}


OUTSIDE = {"head": ("10.0.0.5",)}


@pytest.mark.parametrize(
    ("changes", "verdict", "words"),
    [
        ({}, Verdict.OK, "only this machine"),
        ({"addresses": OUTSIDE}, Verdict.NOTE, "everybody"),
        ({"addresses": OUTSIDE, "anonymous": WANTS_TOKEN}, Verdict.NOTE, "unencrypted"),
        (
            {
                "addresses": OUTSIDE,
                "anonymous": WANTS_TOKEN,
                "spec": a_cluster(dashboard="https://head", auth_token_env="TOKEN_A"),
            },
            Verdict.OK,
            "encrypted",
        ),
    ],
)
def test_an_open_or_unencrypted_dashboard_on_a_network_is_pointed_out(
    changes: dict[str, Any], verdict: Verdict, words: str
) -> None:
    found = check("security", **changes)
    assert (found.verdict, words in found.says) == (verdict, True)
