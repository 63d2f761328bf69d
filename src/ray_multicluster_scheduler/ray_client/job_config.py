"""The job configuration in the first message of a Ray Client: a pickle, so it is read with care.

A pickle may run any code, and even Ray's own records read files in their constructors. So only the names of
these records are known here, each stands for a plain container, and everything else is refused. A few bytes
of it may also ask for any amount of memory: its opcodes are counted before one is obeyed.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from ray._private.ray_logging.logging_config import LoggingConfig
from ray.job_config import JobConfig

#: A configuration holds names and variables. Directories are uploaded before.
MOST_BYTES = 4 * 2**20
#: About four for each variable; and the values of what they make, where one may be named in many places.
MOST_OPCODES = 200_000
MOST_VALUES = 200_000


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


class _CarefulUnpickler(pickle._Unpickler):
    """Python's own unpickler, not the one in C: each key is seen before it is hashed.

    Of a tuple whose parts are shared tuples the hash takes twice as long with each level, in one call that
    nothing interrupts.
    """

    dispatch: ClassVar[dict[int, Callable[..., None]]] = dict(pickle._Unpickler.dispatch)

    def _checked(self, obey: Callable[[Any], None], keys: list[Any]) -> None:
        if any(type(key) is not str for key in keys):
            raise HostileJobConfig("a key in it is no text")
        obey(self)

    def find_class(self, module: str, name: str) -> Any:
        """Return a container for a known record; refuse everything else."""
        try:
            return _KNOWN[module, name]
        except KeyError:
            raise HostileJobConfig(f"{module}.{name} is no part of a job configuration") from None

    def persistent_load(self, _: Any) -> Any:
        """Refuse references to elsewhere."""
        raise HostileJobConfig("it refers to something outside of itself")


def _check_keys() -> None:
    dispatch, checked = _CarefulUnpickler.dispatch, _CarefulUnpickler._checked
    for opcode, keys in (
        (pickle.SETITEM, lambda stack: stack[-2:-1]),
        (pickle.SETITEMS, lambda stack: stack[::2]),
        (pickle.DICT, lambda stack: stack[::2]),
    ):
        obey = dispatch[opcode[0]]
        dispatch[opcode[0]] = lambda self, obey=obey, keys=keys: checked(self, obey, keys(self.stack))


_check_keys()


def read_job_config(pickled: bytes) -> dict[str, Any]:
    """Return the fields of a pickled `JobConfig`; raises `HostileJobConfig`."""
    if not pickled:
        return {}
    if len(pickled) > MOST_BYTES:
        raise HostileJobConfig(f"it has {len(pickled)} bytes; {MOST_BYTES} are allowed")
    try:
        _check_opcodes(pickled)
        found = _CarefulUnpickler(io.BytesIO(pickled)).load()
        return _Plain().fields(found)
    except HostileJobConfig:
        raise
    except Exception as problem:  # noqa: BLE001 - whatever a broken pickle makes Python raise
        raise HostileJobConfig(f"it cannot be read: {type(problem).__name__}") from None


def _check_opcodes(pickled: bytes) -> None:
    """Refuse a pickle that makes more than it brings: nothing is built here."""
    for count, (opcode, argument, _) in enumerate(pickletools.genops(pickled)):
        if count > MOST_OPCODES:
            raise HostileJobConfig(f"it has more than {MOST_OPCODES} parts")
        if "SET" in opcode.name and "ITEM" not in opcode.name:  # its members are hashed
            raise HostileJobConfig("it holds a set")
        # Python makes room for all places of its memory up to the one that is named.
        if "PUT" in opcode.name and argument is not None and int(argument) > count:
            raise HostileJobConfig("it asks for memory that it does not use")


def write_job_config(
    fields: Mapping[str, Any], *, runtime_env: Mapping[str, Any], metadata: Mapping[str, str]
) -> bytes:
    """Return the pickle of the same configuration with another environment and more metadata."""
    config = JobConfig()
    vars(config).update(fields)
    config.set_runtime_env(dict(runtime_env))
    config.metadata = {**(fields.get("metadata") or {}), **metadata}
    return pickle.dumps(config)


class _Plain:
    """Copies values without containers of ours. The copies are counted: a pickle may name one value often."""

    def __init__(self) -> None:
        self._left = MOST_VALUES

    def fields(self, found: Any) -> dict[str, Any]:
        """Return the fields of a configuration."""
        if type(found) is not _Record:
            raise HostileJobConfig("it is no job configuration")
        return {name: self._field(name, value) for name, value in vars(found).items()}

    def _field(self, name: str, value: Any) -> Any:
        if name == "py_logging_config" and type(value) is _Record:
            logging = LoggingConfig.__new__(LoggingConfig)
            vars(logging).update(vars(value))
            return logging
        return self._copied(value)

    def _copied(self, value: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            raise HostileJobConfig(f"it holds more than {MOST_VALUES} values")
        if isinstance(value, Mapping):
            return {key: self._copied(each) for key, each in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(self._copied(each) for each in value)
        if isinstance(value, _Record):
            raise HostileJobConfig("a record is where there can be none")
        return value
