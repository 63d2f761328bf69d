"""Real clusters, a server with a port for Ray Client programs, and such programs, each in its own process."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import grpc
import yaml
from ray.core.generated import ray_client_pb2_grpc as rpc
from tests.e2e.task_world import PROGRAMS
from tests.support.processes import processes, sessions_of
from tests.support.serve_process import ServeProcess
from tests.support.waiting import PATIENCE_S, until

from ray_multicluster_scheduler.local import HeadSpec, Sandbox

BIN = Path(sys.executable).parent
RAYMC = [sys.executable, "-m", "ray_multicluster_scheduler.cli.main"]
#: Of calls that a test makes itself.
CALL_S = 120.0
Metadata = Sequence[tuple[str, str]]


class Failed(Exception):
    """What a program has raised."""

    def __init__(self, kinds: Sequence[str], message: str) -> None:
        super().__init__(f"{kinds[0]}: {message}")
        self.kinds = tuple(kinds)
        self.message = message


class Program:
    """A Ray Client program in a process of its own. Use it as a context manager: it ends with the block."""

    def __init__(self, program: str, log: Path, **environ: str) -> None:
        self._log = log
        clean = {
            n: v
            for n, v in os.environ.items()
            if not n.startswith(("RAY_", "RAYMC_", "PYTEST")) and n != "CI"
        }
        with log.open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, str(PROGRAMS / program)],
                env={**clean, "PYTHONUNBUFFERED": "1", **environ},
                stdin=subprocess.PIPE,
                stdout=(out := log.with_suffix(".out").open("w")),
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        out.close()
        self._read = 0
        self.client_id = ""

    @property
    def session(self) -> str:
        return f"session-{self.client_id}"

    @property
    def errors(self) -> str:
        """What it has written to stderr."""
        return self._log.read_text()

    def answer(self, within_s: float = PATIENCE_S) -> Any:
        """Wait for its next answer; raises `Failed` if that is an error."""
        line = until(self._next, within_s=within_s)
        assert line != "ended", self._log.read_text()
        self._read += 1
        value = json.loads(line.removeprefix("answer:"))
        if "error" in value:
            raise Failed(value["error"], value["message"])
        return value["ok"]

    def _next(self) -> str | None:
        ended = self.process.poll() is not None  # before its output is read
        lines = self._log.with_suffix(".out").read_text().splitlines(keepends=True)
        answers = [line for line in lines if line.startswith("answer:") and line.endswith("\n")]
        return answers[self._read] if len(answers) > self._read else "ended" if ended else None

    def connected(self, within_s: float = PATIENCE_S) -> "Program":
        """Wait until it is connected."""
        self.client_id = self.answer(within_s)
        return self

    def tell(self, command: str, *arguments: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([command, *arguments]) + "\n")
        self.process.stdin.flush()

    def ask(self, command: str, *arguments: Any, within_s: float = PATIENCE_S) -> Any:
        self.tell(command, *arguments)
        return self.answer(within_s)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(60)

    def __enter__(self) -> "Program":
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        if self.process.poll() is None:
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()


class Server(ServeProcess):
    """`raymc serve` with a client port."""

    def __init__(self, folder: Path, config: Path, environ: Mapping[str, str]) -> None:
        clean = {n: v for n, v in os.environ.items() if not n.startswith(("RAY_", "RAYMC_"))}
        own = {"RAY_MULTICLUSTER_HOME": str(folder / "home"), "PATH": f"{BIN}:{os.environ['PATH']}"}
        super().__init__(folder, config, {**clean, **own, **environ}, clients=True)


class User:
    """Somebody with a token, or without: asks the server, and starts programs."""

    def __init__(self, world: "ClientWorld", token: str | None = None) -> None:
        self._world = world
        self.token = token

    @property
    def metadata(self) -> list[tuple[str, str]]:
        return [("authorization", f"Bearer {self.token}")] if self.token else []

    def ask(self, path: str, body: Any = None, method: str | None = None) -> Any:
        """Return the answer of REST, or the status of a refusal."""
        headers = {"Content-Type": "application/json", **dict(self.metadata)}
        data = None if body is None else json.dumps(body).encode()
        request = Request(f"{self._world.server.address}/api/v1/{path}", data, headers, method=method)
        try:
            with urlopen(request, timeout=60) as answer:
                return json.load(answer)
        except HTTPError as refused:
            with refused:
                return refused.code

    def program(
        self, name: str = "client_shell.py", *, init: Any = None, environ: Any = None, **options: object
    ) -> Program:
        """Start a program; the options are those of its session, as `cpus=2`."""
        own = [(f"raymc.{key}", str(value)) for key, value in options.items()]
        return self._world.run(name, [*self.metadata, *own], init=init, environ=environ)

    def raymc(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command as this user: through the server."""
        token = {"RAY_MULTICLUSTER_TOKEN": self.token} if self.token else {}
        where = {"RAY_MULTICLUSTER_ADDRESS": self._world.server.address}
        return subprocess.run(
            [*RAYMC, *words],
            env={**self._world.server.environ, **where, **token},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )


@dataclass(kw_only=True)
class ClientWorld:
    """Clusters, a server, and the programs of one module of tests."""

    sandbox: Sandbox
    server: Server
    folder: Path
    #: Who acts where a test does not say: needs a token as soon as there is one.
    me: User = field(init=False)
    _count: int = 0

    def __post_init__(self) -> None:
        self.me = User(self)

    def run(
        self,
        name: str,
        metadata: Metadata,
        *,
        address: str | None = None,
        init: Mapping[str, Any] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> Program:
        """Start a program with this metadata."""
        self._count += 1
        told = {
            "address": address or self.server.client_address,
            "metadata": list(metadata),
            "init": init or {},
        }
        log = self.folder / f"program-{self._count}.log"
        return Program(name, log, **{"CLIENT": json.dumps(told), **(environ or {})})

    def user(self, name: str, role: str = "submit") -> User:
        """Make somebody with a token; from the first one on, everybody needs one."""
        if self.me.token is None:
            self.me.token = self._new_token("root", "admin")
            until(lambda: User(self).ask("me") == 401)
        return User(self, self._new_token(name, role))

    def revoke(self, token: str) -> None:
        assert self.me.ask(f"tokens/{token.split('_')[1]}", method="DELETE")["revoked_at"]

    def _new_token(self, user: str, role: str) -> str:
        return str(self.me.ask("tokens", {"user": user, "role": role})["token"])

    def sessions(self) -> dict[str, dict[str, Any]]:
        """The open sessions, as REST tells them."""
        return {each["submission_id"]: each for each in self.me.ask("sessions")["sessions"]}

    def until_healthy(self) -> None:
        until(lambda: all(seen["health"] == "HEALTHY" for seen in self.me.ask("clusters")["clusters"]))

    def state(self, job: str) -> str:
        return str(self.me.ask(f"jobs/{job}")["state"])

    def until_ended(self, *jobs: str) -> list[str]:
        """Wait until these have ended, and return their states."""
        final = {"SUCCEEDED", "FAILED", "STOPPED"}
        until(lambda: {self.state(job) for job in jobs} <= final)
        return [self.state(job) for job in jobs]

    def helpers(self, cluster: str) -> list[int]:
        """The helper processes of a cluster."""
        return sessions_of(self.sandbox.heads[cluster].gcs_address)

    def gcs(self, cluster: str) -> str:
        return self.sandbox.heads[cluster].gcs_address


class Raw:
    """Calls of one client that Ray itself would not make."""

    def __init__(self, world: ClientWorld, user: User, client_id: str) -> None:
        self._channel = grpc.insecure_channel(world.server.client_address.removeprefix("ray://"))
        self._metadata = [("client_id", client_id), *user.metadata]

    def __enter__(self) -> "Raw":
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def data(self, request: Any, *, reconnecting: bool = False) -> Any:
        """Send one message on a data path of its own, and return the first answer or the error."""
        metadata = [*self._metadata, ("reconnecting", str(reconnecting))]
        stub = rpc.RayletDataStreamerStub(self._channel)
        try:
            return next(iter(stub.Datapath(iter([request]), metadata=metadata, timeout=CALL_S)))
        except grpc.RpcError as problem:
            return problem

    def call(self, method: str, request: Any) -> Any:
        stub = rpc.RayletDriverStub(self._channel)
        try:
            return getattr(stub, method)(request, metadata=self._metadata, timeout=CALL_S)
        except grpc.RpcError as problem:
            return problem


def is_running(pid: int) -> bool:
    return pid in processes()


def config_of(
    sandbox: Sandbox,
    folder: Path,
    *,
    addresses: Mapping[str, str] | None = None,
    **more: Any,
) -> Path:
    """Write a clusters.yaml in which each cluster has a home directory of its own."""
    clusters = {}
    for spec in sandbox.specs:
        head = sandbox.heads[spec.name]
        clusters[spec.name] = {
            "head_address": (addresses or {}).get(spec.name, head.client_address),
            "dashboard": head.dashboard,
            "runtime_env": {"env_vars": {"home_dir": f"/home/{spec.name}/"}},
            **({"auth_token_env": spec.token_variable} if spec.token_variable else {}),
        }
    path = folder / "clusters.yaml"
    path.write_text(yaml.safe_dump({"clusters": clusters, **more}))
    return path


@contextmanager
def a_client_world(
    folder: Path,
    heads: Sequence[HeadSpec],
    *,
    addresses: Callable[[Sandbox], Mapping[str, str]] = lambda _: {},
    **more: Any,
) -> Iterator[ClientWorld]:
    """Start clusters and a server for them; `more` is what else its clusters.yaml has."""
    tokens = {spec.token_variable: spec.token for spec in heads if spec.token_variable and spec.token}
    with Sandbox(folder / "sandbox", heads) as sandbox:
        config = config_of(sandbox, folder, addresses=addresses(sandbox), **more)
        server = Server(folder / "server", config, tokens)
        try:
            world = ClientWorld(sandbox=sandbox, server=server, folder=folder)
            world.until_healthy()
            yield world
        finally:
            server.stop()


def stays(what: Callable[[], object], *, looks: int = 10, pause_s: float = 0.2) -> bool:
    """Tell whether something holds again and again."""
    for _ in range(looks):
        if not what():
            return False
        time.sleep(pause_s)
    return True
