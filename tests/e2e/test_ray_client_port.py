"""Stock Ray Client programs through one server onto two clusters: their work, refusals, and tokens."""

import os
import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from ray.core.generated import ray_client_pb2 as pb
from ray.job_config import JobConfig
from tests.e2e.client_world import ClientWorld, Failed, Raw, User, a_client_world
from tests.e2e.wiretap import Wiretap
from tests.support.waiting import until

from ray_multicluster_scheduler.local import HeadSpec

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(600)]

CLUSTER_TOKEN = "a-token-of-the-right-cluster"
HEADS = [HeadSpec(name="left", cpus=2), HeadSpec(name="right", cpus=2, token=CLUSTER_TOKEN)]


@pytest.fixture(scope="module")
def wiretap() -> Iterator[list[Wiretap]]:
    """The cable between the server and the right cluster, as soon as that runs."""
    taps: list[Wiretap] = []
    yield taps
    for tap in taps:
        tap.__exit__()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, wiretap: list[Wiretap]) -> Iterator[ClientWorld]:
    def tapped(sandbox: Any) -> dict[str, str]:
        wiretap.append(Wiretap(sandbox.heads["right"].client_address).__enter__())
        return {"right": wiretap[0].address}

    with a_client_world(tmp_path_factory.mktemp("client-port"), HEADS, addresses=tapped) as world:
        yield world


# -- work


def test_each_program_works_on_its_own_cluster_with_the_environment_of_that(
    world: ClientWorld, tmp_path: Path
) -> None:
    (tmp_path / "only_at_home.py").write_text("WORD = 'from home'\n")
    init = {"runtime_env": {"working_dir": str(tmp_path), "env_vars": {"MINE": "of the client"}}}
    # Each claims a whole cluster, and both prefer the same.
    with world.me.program("client_work.py", init=init, cpus=2, cluster="left") as first:
        (at_left,) = until(
            lambda: [
                session
                for session in world.sessions().values()
                if session["cluster"] == "left" and session["state"] in {"SUBMITTED", "RUNNING"}
            ]
        )
        with world.me.program("client_work.py", init=init, cpus=2, cluster="left") as second:
            found = {"left": first.answer(), "right": second.answer()}
    for name, seen in found.items():
        assert seen["look"] == {
            "gcs": world.gcs(name),
            "home_dir": f"/home/{name}/",
            "mine": "of the client",
            "module": "from home",
        }
        assert seen["tasks"] == list(range(0, 20, 2))
        assert seen["actor"] == [6, 8]
        assert seen["actor_home_dir"] == f"/home/{name}/"
        assert seen["named"] == 7
        assert seen["large"] == [100e6, 2 * 100e6 / 8]
        assert sum(seen["pool"]) >= 1000  # four answers of two actors, each of which adds up
        assert seen["failure"][-1] == "True"
        assert {"RayTaskError", "MineError"} <= {re.sub(r"\(.*", "", kind) for kind in seen["failure"]}
        assert seen["generator"] == [0, 1, 4, 9]
    assert world.until_ended(at_left["submission_id"]) == ["SUCCEEDED"]


# -- refusals


def refusal(user: User, **options: object) -> str:
    """Let a program try to connect; return what it was told."""
    with user.program(**options) as program, pytest.raises(Failed) as refused:
        program.connected()
    assert "ConnectionError" in refused.value.kinds
    return refused.value.message


def test_a_program_that_fits_nowhere_is_told_why_after_its_time(world: ClientWorld) -> None:
    with (
        world.me.program(cpus=2, cluster="left") as left,
        world.me.program(cpus=2, cluster="right") as right,
    ):
        where = {program.connected().ask("where")["cluster"] for program in (left, right)}
        assert where == {"left", "right"}
        told = refusal(world.me, queue_timeout=1)
        assert "raymc.queue_timeout" in told
        assert "left" in told
        assert "right" in told
        assert left.ask("add") == right.ask("add") == 1
    assert world.until_ended(left.session, right.session) == ["SUCCEEDED"] * 2


def test_a_program_that_could_never_fit_is_told_at_once(world: ClientWorld) -> None:
    told = refusal(world.me, cpus=1000, queue_timeout=5)
    assert "1000" in told


def test_a_typo_in_an_option_and_a_wrong_value_are_told(world: ClientWorld) -> None:
    assert "did you mean 'raymc.cpus'?" in refusal(world.me, cpu=1)
    assert "wants a number, not 'many'" in refusal(world.me, cpus="many")


class Hostile:
    """Runs code where it is read."""

    def __init__(self, proof: Path) -> None:
        self._proof = proof

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self._proof),)


def hidden_in_an_honest_one(proof: Path) -> JobConfig:
    config = JobConfig()
    config.metadata = {"raymc": Hostile(proof)}  # type: ignore[dict-item]
    return config


@pytest.mark.parametrize("made", [Hostile, hidden_in_an_honest_one])
def test_code_in_the_configuration_of_a_job_is_refused_and_never_runs(
    world: ClientWorld, tmp_path: Path, made: Any
) -> None:
    proof = tmp_path / "it-ran"
    init = pb.InitRequest(job_config=pickle.dumps(made(proof)), ray_init_kwargs="{}")
    with Raw(world, world.me, "0123456789abcdef" * 2) as raw:
        told = raw.data(pb.DataRequest(req_id=1, init=init))
    assert "the job configuration is refused" in str(told)
    assert "posix.mkdir" in str(told)
    assert not proof.exists()
    pickle.loads(pickle.dumps(made(proof)))
    assert proof.exists()  # whoever had read it would have run it


# -- tokens. From here on the server wants them.


def test_without_a_valid_token_that_may_submit_nobody_gets_in(world: ClientWorld) -> None:
    reader = world.user("rita", "read")
    assert "RAY_AUTH_TOKEN" in refusal(User(world))
    assert "not valid" in refusal(User(world, "raymc_0123456789_" + "x" * 43))
    assert "may only read" in refusal(reader)


def test_the_token_of_the_cluster_is_used_there_and_that_of_the_caller_never_reaches_it(
    world: ClientWorld, wiretap: list[Wiretap]
) -> None:
    ann = world.user("ann")
    assert ann.token is not None
    # As Ray's documentation has it: no metadata.
    environ = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": ann.token}
    options = [("raymc.cluster", "right")]
    with world.run("client_shell.py", options, environ=environ) as program:
        seen = program.connected().ask("where")
        assert seen["cluster"] == "right"
        session = world.sessions()[program.session]
        assert (session["user"], session["cluster"]) == ("ann", "right")
        helper = Path("/proc", str(session["helper_pid"]), "environ").read_bytes()
        assert program.ask("add") == 1
    calls = wiretap[0].calls()
    assert len(calls) > 5
    for headers in calls:
        shown = [value for name, value in headers if name == "authorization"]
        assert shown == [f"Bearer {CLUSTER_TOKEN}"]
        assert not [name for name, _ in headers if name.startswith("raymc.")]
    secret = ann.token
    assert not [sent for sent in wiretap[0].sent() if secret.encode() in sent]
    assert secret not in str(seen["environ"])
    assert secret.encode() not in helper
    world.until_ended(program.session)
    trail = world.me.ask("audit?user=ann")["entries"]
    assert [(e["action"], e["outcome"]) for e in trail if program.session in (e["target"] or "")] == [
        ("session", "ok")
    ]


def test_a_revoked_token_ends_its_session_and_opens_no_other(world: ClientWorld) -> None:
    bob = world.user("bob")
    assert bob.token is not None
    with bob.program(cluster="left") as program:
        assert program.connected().ask("add") == 1
        world.revoke(bob.token)
        assert world.until_ended(program.session) == ["STOPPED"]
        with pytest.raises(Failed, match="token is not valid any more"):
            program.ask("add")
        with Raw(world, bob, program.client_id) as raw:
            again = raw.call("ListNamedActors", pb.ClientListNamedActorsRequest())
        assert again.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert "not valid" in again.details()
    assert "not valid" in refusal(bob)


def test_nobody_uses_the_session_of_another_user(world: ClientWorld) -> None:
    carol, mallory = world.user("carol"), world.user("mallory")
    with carol.program(cluster="left") as program, Raw(world, mallory, program.connected().client_id) as raw:
        assert program.ask("add") == 1
        end = pb.DataRequest(req_id=1, connection_cleanup=pb.ConnectionCleanupRequest())
        tries = [
            raw.data(end, reconnecting=True),
            raw.data(pb.DataRequest(req_id=1, init=pb.InitRequest(ray_init_kwargs="{}"))),
            raw.call("ListNamedActors", pb.ClientListNamedActorsRequest()),
            raw.call("KVGet", pb.KVGetRequest(key=b"x")),
            raw.call("ClusterInfo", pb.ClusterInfoRequest(type=pb.ClusterInfoType.CLUSTER_RESOURCES)),
            raw.call("Terminate", pb.TerminateRequest()),
        ]
        codes = [getattr(answer, "code", lambda: None)() for answer in tries]
        assert codes == [grpc.StatusCode.FAILED_PRECONDITION] * len(tries)
        assert program.ask("add") == 2
        assert program.session not in str(mallory.ask("sessions")) or mallory.ask("me")["role"] != "submit"


def test_no_token_is_in_the_log_of_the_server(world: ClientWorld) -> None:
    dave = world.user("dave")
    assert dave.token is not None
    assert "did you mean" in refusal(dave, cpu=1)
    log = world.server.log.read_text()
    assert CLUSTER_TOKEN not in log
    assert not re.search(r"raymc_[0-9a-f]{10}_[\w-]{43}", log)
    assert dave.token.split("_", 2)[2] not in log
