"""The program in the README of the relay."""

import ast
import re
from pathlib import Path

from tests.integration.relay.relay_scene import channel, upstream_server

import raymc_relay

README = Path(raymc_relay.__file__).with_name("README.md")


async def test_the_program_of_the_readme_relays_calls() -> None:
    program = re.search(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert program is not None
    async with upstream_server() as upstream:
        code = program[1].replace("10001", str(upstream.port)).replace("10002", "0")
        names: dict[str, object] = {}
        await eval(compile(code, str(README), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
        listener = names["listener"]
        assert isinstance(listener, raymc_relay.Listener)
        async with channel(f"127.0.0.1:{listener.port}") as calls:
            assert await calls.unary_unary("/Echo/Unary")(b"hello") == b"hello"
        await listener.close()
        connection = names["upstream"]
        assert isinstance(connection, raymc_relay.Connection)
        connection.abort()
        await connection.closed
