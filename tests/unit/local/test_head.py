"""The command line and the environment of a head."""

import json
import sys
from pathlib import Path

from ray_multicluster_scheduler.local.head import command, environment
from ray_multicluster_scheduler.local.spec import Head, HeadSpec, Ports

HEAD = Head(name="a", ports=Ports.at(20_000), temp_dir=Path("/tmp/raymc-1/0"))


def test_every_address_is_loopback_and_every_port_is_of_the_block() -> None:
    options = dict(flag.split("=", 1) for flag in command(HeadSpec(name="a"), HEAD) if "=" in flag)
    assert {options["--node-ip-address"], options["--dashboard-host"]} == {"127.0.0.1"}
    ports = {name: int(value) for name, value in options.items() if "port" in name}
    assert len(ports) == 11
    assert all(20_000 < port < 20_500 for port in ports.values())


def test_the_wanted_resources_reach_ray() -> None:
    spec = HeadSpec(
        name="a", cpus=8, gpus=2, memory=2**30, resources={"rack": 1}, python="/opt/py/bin/python"
    )
    arguments = command(spec, HEAD)
    assert arguments[0] == "/opt/py/bin/python"
    assert {"--num-cpus=8", "--num-gpus=2", f"--memory={2**30}"} <= set(arguments)
    assert json.loads(next(a for a in arguments if a.startswith("--resources=")).partition("=")[2]) == {
        "rack": 1
    }


def test_nothing_that_was_set_for_other_clusters_reaches_a_head() -> None:
    theirs = {
        "RAY_ADDRESS": "10.0.0.1:6379",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": "hush",
        "RAYMC_LOCAL_TOKEN_B": "hush",
        "RAY_MULTICLUSTER_HOME": "/home/me",
        "HOME": "/home/me",
        "PATH": "/usr/bin",
    }
    made = environment(HeadSpec(name="a"), HEAD, None, theirs)
    assert made["RAY_AUTH_MODE"] == "disabled"
    assert "hush" not in made.values()
    assert made.keys() & theirs.keys() == {"RAY_AUTH_MODE", "HOME", "PATH"}


def test_python_in_a_job_is_the_interpreter_that_has_ray() -> None:
    made = environment(HeadSpec(name="a"), HEAD, None, {"PATH": "/usr/bin"})
    assert made["PATH"] == f"{Path(sys.executable).parent}:/usr/bin"


def test_a_token_is_named_by_its_file_and_stays_out_of_environment_and_command_line() -> None:
    spec = HeadSpec(name="a", token="sesame")
    made = environment(spec, HEAD, Path("/home/me/a.token"), {})
    assert (made["RAY_AUTH_MODE"], made["RAY_AUTH_TOKEN_PATH"]) == ("token", "/home/me/a.token")
    assert "sesame" not in " ".join([*command(spec, HEAD), *made.values()])


def test_extra_environment_is_added_but_cannot_undo_loopback_or_the_mark() -> None:
    env = {"RAY_enable_autoscaler_v2": "1", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "1", "RAYMC_SANDBOX": "x"}
    made = environment(HeadSpec(name="a", env=env), HEAD, None, {})
    assert made["RAY_enable_autoscaler_v2"] == "1"
    assert made["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] == "0"
    assert made["RAYMC_SANDBOX"] == "/tmp/raymc-1/0"
