"""The handle of an actor on another cluster: used like Ray's own."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from ray_multicluster_scheduler.errors import HomeLost

#: Ray Client's message once a session is lost; it has no exception type for it.
NOT_CONNECTED = "Ray Client is not connected"


class HandleState:
    """The state of a handle: its actor, the bridge to it, and the number of calls."""

    def __init__(
        self,
        bridge: Any,
        bridge_id: str,
        key: str,
        methods: Mapping[str, int | str],
        about: Mapping[str, Any],
    ) -> None:
        self.bridge = bridge
        self.bridge_id = bridge_id
        self.key = key
        self.methods = methods
        #: Keys: `home`, `cluster`, `class`, `name`, and `ordered` if calls start in the order they are made.
        self.about = about
        #: Numbers of the calls: Ray keeps the order of calls per handle, and so does the bridge.
        self.numbers = itertools.count()
        self._caller = uuid.uuid4().hex[:12]
        #: Called when the handle is copied: from then on its end does not mean that the last copy is gone.
        self.on_shared: Callable[[], object] | None = None

    def next_position(self) -> tuple[str, int] | None:
        """Return caller and number of the next call; None if the actor is not ordered."""
        number = next(self.numbers)
        return (self._caller, number) if self.about["ordered"] else None


class CrossClusterActor:
    """An actor on another cluster. `handle.method.remote(...)` returns an ObjectRef of the home cluster.

    It can be passed to tasks and actors of the home cluster, and to those of the actor's own cluster. It has
    one attribute of its own, so that it hides no method of the actor.
    """

    def __init__(self, state: HandleState) -> None:
        self._raymc = state

    def __getattr__(self, name: str) -> CrossClusterMethod:
        if name == "_raymc":  # by copy and pickle, before it is set
            raise AttributeError(name)
        state = self._raymc
        if name not in state.methods:
            raise AttributeError(f"{state.about['class']!r} has no method {name!r}")
        return CrossClusterMethod(
            self, name, {"num_returns": state.methods[name]} if state.methods[name] != 1 else {}
        )

    def __repr__(self) -> str:
        state = self._raymc
        return (
            f"CrossClusterActor({state.about['class']}, {state.key}, on cluster {state.about['cluster']!r})"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        state = self._raymc
        if state.on_shared is not None:
            state.on_shared()
        return restored, (state.bridge, state.bridge_id, state.key, state.methods, state.about)


def restored(*details: Any) -> CrossClusterActor:
    """Return a copy of a handle; its calls are ordered by themselves."""
    return CrossClusterActor(HandleState(*details))


class CrossClusterMethod:
    """One method of a `CrossClusterActor`."""

    __slots__ = ("_actor", "_name", "_options")

    def __init__(self, actor: CrossClusterActor, name: str, options: Mapping[str, Any]) -> None:
        self._actor = actor
        self._name = name
        self._options = options

    def __call__(self, *_args: Any, **_kwargs: Any) -> Any:
        """Raise, as Ray does for a call without `.remote`."""
        raise TypeError(f"actor methods cannot be called directly; write `.{self._name}.remote(...)`")

    def options(self, *, num_returns: int | None = None, name: str | None = None) -> CrossClusterMethod:
        """Return the method with other options; the other cluster's dashboard shows the name."""
        options = {"num_returns": num_returns, "name": name}
        changes = {option: value for option, value in options.items() if value is not None}
        return CrossClusterMethod(self._actor, self._name, {**self._options, **changes})

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        """Call the method and return its home ObjectRef, or a list of them if it has several results."""
        state, options = self._actor._raymc, self._options
        returns = options.get("num_returns", 1)
        if not isinstance(returns, int):
            raise TypeError(
                f"{self._name!r} yields its results, and generators do not cross clusters: return a list, "
                "or keep the actor at home with preferred_cluster"
            )
        call = state.bridge.call
        if returns != 1:
            call = call.options(num_returns=returns)
        try:
            return call.remote(state.key, self._name, state.next_position(), options, args, kwargs)
        except BaseException as problem:
            if is_home_lost(problem):
                raise HomeLost(state.about["home"], "Ray is not connected any more") from problem
            raise


def is_home_lost(problem: BaseException) -> bool:
    """Tell whether a call failed because the caller has lost its home cluster."""
    return isinstance(problem, ConnectionError) or NOT_CONNECTED in str(problem)
