"""What may be asked for, and what is refused with a reason."""

import pytest

from ray_multicluster_scheduler.errors import InvalidRequest, InvalidResources
from ray_multicluster_scheduler.local.spec import BLOCK, FIRST, HeadSpec, Ports, check_heads


@pytest.mark.parametrize("name", ["", "a b", "../a", "-a", "a" * 64, "中"])
def test_a_name_that_clusters_yaml_would_refuse_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest, match="cannot name a cluster"):
        HeadSpec(name=name)


@pytest.mark.parametrize(
    ("amounts", "named"), [({"cpus": -1}, "CPUs"), ({"gpus": 1.5}, "GPUs"), ({"memory": -1}, "memory")]
)
def test_amounts_are_whole_numbers_of_zero_or_more(amounts: dict[str, int], named: str) -> None:
    with pytest.raises(InvalidRequest, match=f"cluster 'a': {named} must be"):
        HeadSpec(name="a", **amounts)


def test_custom_resources_are_checked_before_anything_starts() -> None:
    with pytest.raises(InvalidResources, match="rack"):
        HeadSpec(name="a", resources={"rack": -1})


def test_an_interpreter_has_a_full_path() -> None:
    with pytest.raises(InvalidRequest, match="full path, not 'python3'"):
        HeadSpec(name="a", python="python3")


def test_a_sandbox_needs_a_cluster() -> None:
    with pytest.raises(InvalidRequest, match="at least one"):
        check_heads([])


@pytest.mark.parametrize(("one", "other"), [("a", "a"), ("a.b", "a-b"), ("mac", "MAC")])
def test_two_clusters_never_share_a_name_or_a_token_variable(one: str, other: str) -> None:
    with pytest.raises(InvalidRequest, match="must differ"):
        check_heads([HeadSpec(name=one), HeadSpec(name=other)])


def test_secrets_are_not_in_the_representation() -> None:
    spec = HeadSpec(name="mac", token="sesame", env={"PASSWORD": "hush"})
    assert spec.token_variable == "RAYMC_LOCAL_TOKEN_MAC"
    assert "sesame" not in repr(spec)
    assert "hush" not in repr(spec)


def test_the_ports_of_a_head_are_all_different_and_in_its_own_block() -> None:
    ports = Ports.at(FIRST)
    services = [getattr(ports, name) for name in Ports.__slots__]
    everything = [*services, *ports.workers]
    assert len(set(everything)) == len(everything)
    assert set(everything) <= set(range(FIRST, FIRST + BLOCK))
