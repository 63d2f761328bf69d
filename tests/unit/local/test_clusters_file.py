"""The generated clusters.yaml is one that our own configuration accepts."""

from pathlib import Path

from ray_multicluster_scheduler.config import parse_config
from ray_multicluster_scheduler.local.sandbox import Member, render
from ray_multicluster_scheduler.local.spec import Head, HeadSpec, Ports


def a_member(spec: HeadSpec, base: int) -> Member:
    return Member(spec=spec, head=Head(name=spec.name, ports=Ports.at(base), temp_dir=Path("/tmp/raymc-1/0")))


def test_the_file_loads_and_says_what_was_asked_for() -> None:
    plain = HeadSpec(name="centos")
    rich = HeadSpec(name="mac", tags=("gpu", "m1"), runtime_env={"env_vars": {"A": "b"}}, token="sesame")
    text = render([a_member(plain, 20_000), a_member(rich, 20_500)])
    centos, mac = parse_config(text, Path("clusters.yaml")).clusters
    assert (centos.head_address, centos.dashboard) == ("127.0.0.1:20003", "http://127.0.0.1:20002")
    assert (mac.tags, mac.runtime_env, mac.auth_token_env) == (
        ("gpu", "m1"),
        {"env_vars": {"A": "b"}},
        "RAYMC_LOCAL_TOKEN_MAC",
    )
    assert "sesame" not in text
