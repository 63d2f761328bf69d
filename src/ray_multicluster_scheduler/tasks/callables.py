"""Functions and classes of the user, plain or decorated, and the resources that they request."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

from ray_multicluster_scheduler.errors import InvalidRequest
from ray_multicluster_scheduler.model.resources import parse_requirements
from ray_multicluster_scheduler.tasks import lazy_import

#: Resources that have their own option in Ray.
_NAMED = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
#: Marks a generator in the table of an actor's methods.
GENERATOR = "generator"


class UserCallable:
    """A function or class: undecorated, as a remote object at home, and pickled for other clusters."""

    def __init__(self, code: Any) -> None:
        self.plain, self.defaults = _undecorated(code)
        self._decorated = code if code is not self.plain else None
        self._at_home: Any = None
        self._prepared: tuple[Mapping[str, Any], Any] | None = None
        self._pickled: tuple[str, bytes] | None = None

    @property
    def name(self) -> str:
        """Return its name, for display."""
        return str(getattr(self.plain, "__name__", self.plain))

    @property
    def at_home(self) -> Any:
        """Return the remote function or actor class; cached, as Ray exports each such object once."""
        if self._at_home is None:
            self._at_home = self._decorated or lazy_import.ray().remote(self.plain)
        return self._at_home

    def prepared(self, options: Mapping[str, Any]) -> Any:
        """Return `at_home` with options applied; the last result is cached, as most calls repeat them."""
        last = self._prepared  # read once: another thread may replace it
        if last is None or last[0] != options:
            last = self._prepared = (dict(options), self.at_home.options(**options))
        return last[1]

    @property
    def pickled(self) -> tuple[str, bytes]:
        """Return digest and pickle."""
        if self._pickled is None:
            content = lazy_import.ray().cloudpickle.dumps(self.plain)
            self._pickled = hashlib.sha256(content).hexdigest()[:16], content
        return self._pickled


class CallableCache:
    """Caches the `UserCallable` of a function or class for as long as the program holds it."""

    def __init__(self) -> None:
        self._cached: WeakKeyDictionary[Any, UserCallable] = WeakKeyDictionary()

    def get(self, code: Any) -> UserCallable:
        """Return the `UserCallable` of a function or class."""
        if not callable(code) and not hasattr(code, "remote"):
            raise InvalidRequest(f"a function or a class is needed, not {code!r}")
        try:
            cached = self._cached.get(code)
            if cached is None:
                cached = self._cached[code] = UserCallable(code)
        except TypeError:  # not hashable or not weakly referenceable: not cached
            return UserCallable(code)
        return cached


def options_and_claim(
    defaults: Mapping[str, Any],
    requirements: Mapping[str, float] | None,
    changes: Mapping[str, Any],
    *,
    default_cpus: float,
) -> tuple[dict[str, Any], dict[str, float]]:
    """Return Ray's options and the resources they claim. Requirements without CPU claim no CPU."""
    options = {**defaults, **{name: value for name, value in changes.items() if value is not None}}
    if requirements is not None:
        amounts = parse_requirements(requirements, name="resource_requirements")
        options = {
            name: value for name, value in options.items() if name not in {*_NAMED.values(), "resources"}
        }
        options["num_cpus"] = amounts.get("CPU", 0)
        options |= {option: amounts[name] for name, option in _NAMED.items() if name in amounts}
        if custom := {name: amount for name, amount in amounts.items() if name not in _NAMED}:
            options["resources"] = custom
    if options.get("memory"):
        options["memory"] = int(options["memory"])
    claim = {name: float(options.get(option) or 0) for name, option in _NAMED.items()}
    if options.get("num_cpus") is None:
        claim["CPU"] = default_cpus
    claim |= options.get("resources") or {}
    return options, {name: amount for name, amount in claim.items() if amount}


def methods_of(plain: type) -> dict[str, int | str]:
    """Return the public methods of an actor class and how many values each returns."""
    members = inspect.getmembers(plain, inspect.isroutine)
    return {
        name: _returns(method)
        for name, method in members
        if not name.startswith("__") or name in {"__call__"}
    }


def is_ordered(plain: type, options: Mapping[str, Any]) -> bool:
    """Tell whether Ray starts calls of this actor in order: it is neither async nor multi-threaded."""
    methods = (method for _, method in inspect.getmembers(plain, inspect.isroutine))
    is_async = any(inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each) for each in methods)
    return (
        not is_async and (options.get("max_concurrency") or 1) == 1 and not options.get("concurrency_groups")
    )


def _returns(method: Any) -> int | str:
    if inspect.isgeneratorfunction(method) or inspect.isasyncgenfunction(method):
        return GENERATOR
    returns = getattr(method, "__ray_num_returns__", 1)
    return returns if isinstance(returns, int) else GENERATOR


def _undecorated(code: Any) -> tuple[Any, dict[str, Any]]:
    """Return the function or class behind `@ray.remote`, and its options."""
    if hasattr(code, "__ray_metadata__"):  # a class, decorated natively
        return code.__ray_metadata__.modified_class.__ray_actor_class__, dict(code._default_options)
    if hasattr(code, "_function") and hasattr(code, "_default_options"):
        return code._function, dict(code._default_options)
    if hasattr(code, "actor_cls"):  # decorated while Ray Client was connected
        return code.actor_cls, dict(code._options or {})
    if hasattr(code, "_func") and hasattr(code, "remote"):
        return code._func, dict(code._options or {})
    return code, {}
