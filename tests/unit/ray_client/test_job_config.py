"""The job configuration of a client is a pickle: it is read without running anything that is in it."""

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from ray.job_config import JobConfig
from ray.runtime_env import RuntimeEnv

from ray_multicluster_scheduler.ray_client.messages import (
    MOST_BYTES,
    MOST_OPCODES,
    HostileJobConfig,
    read_job_config,
    write_job_config,
)


class Runs:
    """Runs something as soon as it is unpickled."""

    def __init__(self, function: Any, *args: Any) -> None:
        self.call = function, args

    def __reduce__(self) -> Any:
        return self.call


def honest(**changes: Any) -> JobConfig:
    config = JobConfig(metadata={"mine": "yes"}, ray_namespace="here")
    config.set_runtime_env({"env_vars": {"A": "b"}, "working_dir": "gcs://_ray_pkg_0123.zip"})
    vars(config).update(changes)
    return config


def test_an_honest_configuration_keeps_all_that_is_in_it() -> None:
    config = honest()
    fields = read_job_config(pickle.dumps(config))
    assert fields == {**vars(config), "runtime_env": config.runtime_env}
    env = {"env_vars": {"C": "d"}}
    written = pickle.loads(write_job_config(fields, runtime_env=env, metadata={"x": "y"}))
    assert isinstance(written, JobConfig)
    assert written.runtime_env == env
    assert written.metadata == {"mine": "yes", "x": "y"}
    assert written.ray_namespace == "here"
    assert written._get_proto_job_config().metadata == {"mine": "yes", "x": "y"}


def test_rays_own_record_of_an_environment_becomes_a_plain_one() -> None:
    config = honest(runtime_env=RuntimeEnv(env_vars={"A": "b"}))
    env = read_job_config(pickle.dumps(config))["runtime_env"]
    assert type(env) is dict
    assert env["env_vars"] == {"A": "b"}


def test_a_logging_configuration_is_kept() -> None:
    config = honest()
    config.ensure_logging_config({"encoding": "JSON", "log_level": "DEBUG"})
    fields = read_job_config(pickle.dumps(config))
    written = pickle.loads(write_job_config(fields, runtime_env={}, metadata={}))
    assert written.py_logging_config.log_level == "DEBUG"


def test_nothing_is_an_empty_configuration() -> None:
    assert read_job_config(b"") == {}


HOSTILE = (
    "a command",
    "a command inside",
    "eval",
    "a constructor of Ray that reads a file",
    "a function of a library",
    "no configuration",
    "a configuration in a configuration",
    "a reference to elsewhere",
    "garbage",
    "a part of one",
    "too much",
    "a place in memory that is far away",
    "too many parts",
    "one value in many places",
    "a list in itself",
    "a key that takes for ever to hash",
    "the same in one step",
    "the same in a dictionary of old",
    "a set",
)


def often() -> list[Any]:
    value: list[Any] = []
    for _ in range(30):
        value = [value, value]
    return value


def endless() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def hostile(tmp_path: Path) -> dict[str, bytes]:
    mark = tmp_path / "ran"
    requirements = tmp_path / "secrets.txt"
    requirements.write_text("secret==1\n")
    return {
        "a command": pickle.dumps(Runs(os.system, f"touch {mark}")),
        "a command inside": pickle.dumps(honest(metadata=Runs(os.system, f"touch {mark}"))),
        "eval": pickle.dumps(Runs(eval, f"open({str(mark)!r}, 'w')")),
        "a constructor of Ray that reads a file": pickle.dumps(
            honest(runtime_env=Runs(RuntimeEnv, None, None, str(requirements)))
        ),
        "a function of a library": pickle.dumps(Runs(pickle.loads, b"")),
        "no configuration": pickle.dumps({"runtime_env": {}}),
        "a configuration in a configuration": pickle.dumps(honest(metadata=honest())),
        "a reference to elsewhere": b"\x80\x04\x8c\x01xQ.",
        "garbage": b"\x80\x04garbage",
        "a part of one": pickle.dumps(honest())[:-10],
        "a place in memory that is far away": b"\x80\x02]r\xff\xff\xff\x7f.",
        "too many parts": b"\x80\x02" + b"]0" * MOST_OPCODES + b"].",
        "one value in many places": pickle.dumps(honest(metadata={"x": often()})),
        "a list in itself": pickle.dumps(honest(metadata={"x": endless()})),
        "a key that takes for ever to hash": b"\x80\x02}(K\x01" + b"2\x86" * 60 + b"K\x01u.",
        "the same in one step": b"\x80\x02}K\x01" + b"2\x86" * 60 + b"K\x01s.",
        "the same in a dictionary of old": b"\x80\x02(K\x01" + b"2\x86" * 60 + b"K\x01d.",
        "a set": b"\x80\x04\x8f(K\x01" + b"2\x86" * 60 + b"\x90.",
        "too much": pickle.dumps(honest(metadata={"x": "y" * MOST_BYTES})),
    }


@pytest.mark.parametrize("name", HOSTILE)
def test_anything_else_is_refused_and_not_run(name: str, tmp_path: Path) -> None:
    with pytest.raises(HostileJobConfig):
        read_job_config(hostile(tmp_path)[name])
    assert not (tmp_path / "ran").exists()
