"""The job configuration in the first message of a Ray Client: a pickle, so it is read with care.

A pickle may run any code, and even Ray's own records read files in their constructors. So only the names of
these records are known here, each stands for a plain container, and everything else is refused.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from typing import Any

from ray._private.ray_logging.logging_config import LoggingConfig
from ray.job_config import JobConfig

#: A configuration holds names and variables. Directories are uploaded before.
MOST_BYTES = 16 * 2**20


class HostileJobConfig(ValueError):
    """The pickle holds something that is no part of a job configuration."""


class _Record:
    """Stands for an object of Ray: holds its fields, and does nothing."""

    def __init__(self) -> None:
        """Take no arguments: constructors are not called in an honest pickle."""


class _Environment(dict[str, Any]):
    """Stands for Ray's `RuntimeEnv`, which is a dictionary."""

    def __init__(self) -> None:
        super().__init__()


_KNOWN = {
    ("ray.job_config", "JobConfig"): _Record,
    ("ray._private.ray_logging.logging_config", "LoggingConfig"): _Record,
    ("ray.runtime_env", "RuntimeEnv"): _Environment,
    ("ray.runtime_env", "RuntimeEnvConfig"): _Environment,
    ("ray.runtime_env.runtime_env", "RuntimeEnv"): _Environment,
    ("ray.runtime_env.runtime_env", "RuntimeEnvConfig"): _Environment,
}


class _CarefulUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """Return a container for a known record; refuse everything else."""
        try:
            return _KNOWN[module, name]
        except KeyError:
            raise HostileJobConfig(f"{module}.{name} is no part of a job configuration") from None

    def persistent_load(self, _: Any) -> Any:
        """Refuse references to elsewhere."""
        raise HostileJobConfig("it refers to something outside of itself")


def read_job_config(pickled: bytes) -> dict[str, Any]:
    """Return the fields of a pickled `JobConfig`; raises `HostileJobConfig`."""
    if not pickled:
        return {}
    if len(pickled) > MOST_BYTES:
        raise HostileJobConfig(f"it has {len(pickled)} bytes; {MOST_BYTES} are allowed")
    try:
        found = _CarefulUnpickler(io.BytesIO(pickled)).load()
    except HostileJobConfig:
        raise
    except Exception as problem:  # noqa: BLE001 - whatever a broken pickle makes Python raise
        raise HostileJobConfig(f"it cannot be read: {type(problem).__name__}") from None
    if type(found) is not _Record:
        raise HostileJobConfig("it is no job configuration")
    fields = vars(found)
    return {name: _plain(name, value) for name, value in fields.items()}


def write_job_config(
    fields: Mapping[str, Any], *, runtime_env: Mapping[str, Any], metadata: Mapping[str, str]
) -> bytes:
    """Return the pickle of the same configuration with another environment and more metadata."""
    config = JobConfig()
    vars(config).update(fields)
    config.set_runtime_env(dict(runtime_env))
    config.metadata = {**(fields.get("metadata") or {}), **metadata}
    return pickle.dumps(config)


def _plain(name: str, value: Any) -> Any:
    """Return a field without containers of ours."""
    if name == "py_logging_config" and type(value) is _Record:
        logging = LoggingConfig.__new__(LoggingConfig)
        vars(logging).update(vars(value))
        return logging
    return _without_containers(value)


def _without_containers(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_containers(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_without_containers(each) for each in value)
    if isinstance(value, _Record):
        raise HostileJobConfig("a record is where there can be none")
    return value
