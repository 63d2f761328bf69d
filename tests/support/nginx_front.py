"""The real nginx on loopback, with the files of `deploy/nginx`: ports, addresses and paths are replaced."""

import asyncio
import re
import shutil
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.contract.test_ray_api_tls import write_certificate
from tests.support.waiting import eventually

FILES = Path(__file__).parents[2] / "deploy" / "nginx"
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
#: Where they are looked for: beside nginx.conf.
INCLUDED = ("raymc-formats.conf", "raymc-rules.conf")
#: What nginx writes to when it is not told otherwise; the defaults belong to root.
TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


@dataclass(frozen=True, kw_only=True)
class Front:
    """A running nginx."""

    https_port: int
    client_port: int
    certificate: Path
    access_log: Path

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.https_port}"

    @property
    def trusting(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.certificate))


def replaced(name: str, words: Mapping[str, str]) -> str:
    """Return a file of `deploy/nginx` with some words replaced, each of which must be there."""
    text = (FILES / name).read_text()
    for old, new in words.items():
        assert old in text, f"{name} says {old!r} no more"
        text = text.replace(old, new)
    return text


def stream_module() -> str | None:
    """Return how nginx gets its stream module: nothing to say if it is built in; None: it has none."""
    told = subprocess.run([str(NGINX), "-V"], capture_output=True, text=True, check=True).stderr
    if re.search(r"--with-stream(?!=|_)", told):
        return ""
    folder = re.search(r"--modules-path=(\S+)", told)
    module = Path(folder[1], "ngx_stream_module.so") if folder else None
    return f"load_module {module};\n" if module is not None and module.exists() else None


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        taken = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in taken]


def written(folder: Path, servers: Sequence[int], clients: Sequence[int]) -> tuple[Path, Front]:
    """Write a whole configuration for two servers, and for their client ports if they have any."""
    https_port, client_port = free_ports(2)
    pem, log = folder / "tls.pem", folder / "access.log"
    write_certificate(pem)
    tls = {"/etc/nginx/raymc/tls.crt": str(pem), "/etc/nginx/raymc/tls.key": str(pem)}
    server = replaced(
        "raymc.conf",
        {
            **tls,
            "listen 443 ssl": f"listen 127.0.0.1:{https_port} ssl",
            "/var/log/nginx/raymc.log": str(log),
            "127.0.0.1:8700": f"127.0.0.1:{servers[0]}",
            "127.0.0.1:8701": f"127.0.0.1:{servers[1]}",
        },
    )
    (folder / "raymc").mkdir()
    for name in INCLUDED:
        shutil.copy(FILES / name, folder / "raymc")
    temporary = "".join(f"{name}_temp_path {folder}/{name};\n" for name in TEMPORARY)
    text = "daemon off;\nmaster_process off;\nevents {}\n"
    text += f"pid {folder}/nginx.pid;\nhttp {{\n{temporary}{server}}}\n"
    if clients:
        stream = replaced(
            "raymc-stream.conf",
            {
                **tls,
                "listen 10001 ssl": f"listen 127.0.0.1:{client_port} ssl",
                "127.0.0.1:10011": f"127.0.0.1:{clients[0]}",
                "127.0.0.1:10012": f"127.0.0.1:{clients[1]}",
                "/var/log/nginx/raymc-client.log": str(folder / "client.log"),
            },
        )
        text = f"{stream_module()}{text}{stream}"
    path = folder / "nginx.conf"
    path.write_text(text)
    return path, Front(https_port=https_port, client_port=client_port, certificate=pem, access_log=log)


@asynccontextmanager
async def nginx_in_front(
    folder: Path, servers: Sequence[int], clients: Sequence[int] = ()
) -> AsyncIterator[Front]:
    """Run nginx in front of two servers while the block runs."""
    path, front = written(folder, servers, clients)
    process = await asyncio.create_subprocess_exec(
        str(NGINX), "-e", str(folder / "error.log"), "-p", str(folder), "-c", str(path)
    )
    try:
        await eventually(lambda: _listens(process, front.https_port, folder / "error.log"))
        yield front
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


async def _listens(process: asyncio.subprocess.Process, port: int, log: Path) -> bool:
    assert process.returncode is None, f"nginx has ended: look at {log}"
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionRefusedError:
        return False
    writer.close()
    return True
