"""`raymc result` writes what a job has left, to stdout or to a file."""

import json
from pathlib import Path

import pytest
from tests.support.job_commands import commands
from tests.support.system import fake

from ray_multicluster_scheduler.testing import ShellRunner

PLACE = "$RAY_MULTICLUSTER_RESULT"


def test_json_is_indented_a_url_is_named_and_bytes_go_to_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large, output = tmp_path / "large", tmp_path / "output"
    large.write_bytes(b"\x80" * 2_000_000)
    left = {
        "json": f"""echo '{{"a": "é"}}' > {PLACE}; exit 3""",
        "bytes": f"printf 'a\\000' > {PLACE}",
        "url": f"echo file://{large} > {PLACE}",
        "none": "true",
    }
    with commands(tmp_path, monkeypatch, fake("a", 4, runner=ShellRunner())) as raymc:
        for name, command in left.items():
            raymc.run("submit", "--submission-id", name, "--", "sh", "-c", command)
        assert raymc.run("result", "json").out == '{\n  "a": "é"\n}\n'  # however the job ended
        assert raymc.run("result", "url").out == f"file://{large}\n"
        for name, content in (("bytes", b"a\0"), ("url", large.read_bytes())):
            done = raymc.run("result", name, "-o", str(output))
            assert (done.code, done.out) == (0, ""), done
            assert output.read_bytes() == content
        raymc.run("result", "json", "-o", str(output))
        assert json.loads(output.read_bytes()) == {"a": "é"}
        assert "its last attempt left none" in raymc.run("result", "none").err
        assert "name one of them" in raymc.refused("result", "json", "url")
        assert "cannot be written" in raymc.refused("result", "json", "-o", str(tmp_path / "no" / "output"))
