"""A Ray Client program behind nginx keeps its actors when the server that it is connected to is stopped."""

import asyncio
import shutil
import signal
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.integration.test_nginx import client_port
from tests.integration.test_serve import World
from tests.support.nginx_front import NGINX, nginx_in_front, stream_module
from tests.support.raymc import raymc

from ray_multicluster_scheduler.local import Sandbox

PROGRAM = """
import ray
ray.init("ray://127.0.0.1:{port}", _metadata=[("authorization", "Bearer {token}")])

@ray.remote
class Counter:
    def __init__(self):
        self.n = 0
    def add(self):
        self.n += 1
        return self.n

counter = Counter.remote()
while True:
    print(ray.get(counter.add.remote()), flush=True)
    if not input():
        break
"""


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(
    NGINX is None or stream_module() is None,
    reason="NOT TESTED: nginx with its stream module is not installed",
)
async def test_a_program_goes_on_through_the_other_server(sandbox: Sandbox, tmp_path: Path) -> None:
    world = World(tmp_path)
    shutil.copy(sandbox.config_path, world.path)
    made = ("token", "create", "--config", world.path, "--user", "ann", "--role", "submit")
    token = (await raymc(*made, environ=world.environ)).out.strip()
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(world.serving("--client-port", "0")) for _ in range(2)]
        ports = [int(each.address.rpartition(":")[2]) for each in servers]
        clients = [client_port(each) for each in servers]
        front = await stack.enter_async_context(nginx_in_front(tmp_path, ports, clients))
        pem = str(front.certificate)
        tls = dict.fromkeys(("RAY_TLS_CA_CERT", "RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY"), pem)
        program = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            PROGRAM.format(port=front.client_port, token=token),
            env={**world.environ, **tls, "RAY_USE_TLS": "1"},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            assert program.stdin is not None
            assert program.stdout is not None
            assert await program.stdout.readline() == b"1\n"
            servers[0].process.send_signal(signal.SIGTERM)
            await servers[0].process.wait()
            program.stdin.write(b"more\n")
            assert await program.stdout.readline() == b"2\n"
            program.stdin.write(b"\n")
            assert await program.wait() == 0
        finally:
            if program.returncode is None:
                program.kill()
                await program.wait()
    assert str(clients[1]) in (tmp_path / "client.log").read_text()
