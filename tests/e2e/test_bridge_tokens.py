"""The token of one cluster is not left in the control store of another one."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.task_world import World, a_world, finish
from tests.support.waiting import until

from ray_multicluster_scheduler.local import HeadSpec, Sandbox

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(900)]

HEADS = [
    HeadSpec(name="home", cpus=2, token="the-token-of-home-71f3a9"),
    HeadSpec(name="other", cpus=2, token="the-token-of-the-other-c05e22"),
]


@pytest.fixture
def world(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with (
        Sandbox(tmp_path_factory.mktemp("sandbox"), HEADS) as sandbox,
        a_world(sandbox, tmp_path, HEADS) as world,
    ):
        yield world


def is_in_memory(pid: int, text: str) -> bool:
    """Tell whether a process has a text anywhere in its memory."""
    regions = Path(f"/proc/{pid}/maps").read_text().splitlines()
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for region in regions:
            span, permissions, *_ = region.split()
            if not permissions.startswith("rw"):
                continue
            begin, end = (int(part, 16) for part in span.split("-"))
            memory.seek(begin)
            try:
                if text.encode() in memory.read(end - begin):
                    return True
            except OSError:
                continue  # not every region can be read
    return False


def test_the_home_cluster_does_not_keep_the_token_of_another_one(world: World) -> None:
    program = world.outside(
        "with_token.py", RAY_MULTICLUSTER_HOME=str(world.folder / "outside"), **world.tokens
    )
    until(lambda: world.note("at-work").exists() or program.poll() is not None)
    (gcs,) = world.sandbox.pids("home")["gcs_server"]
    is_kept = is_in_memory(gcs, str(HEADS[1].token))
    # The search would find it: the store knows the actor by the name that its bridge gave it.
    assert is_in_memory(gcs, "raymc bridge to other")
    world.note("go-on").write_text("")
    assert finish(program) == [world.head(name).gcs_address for name in ("home", "other")]
    assert not is_kept
