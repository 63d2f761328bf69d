"""The unit and the image in `deploy/` are held to the code, and to their own tools."""

import re
import shutil
import subprocess
import sys
from importlib.metadata import metadata
from pathlib import Path

import pytest
import yaml
from tests.docs.test_commands import parse_raymc
from tests.support.pages import ROOT
from tests.support.waiting import PATIENCE_S

DEPLOY = ROOT / "deploy"
SYSTEMD, DOCKER = DEPLOY / "systemd", DEPLOY / "docker"
UNIT = (SYSTEMD / "raymc.service").read_text()
DOCKERFILE = (DOCKER / "Dockerfile").read_text()
#: A score of `systemd-analyze security`, times ten: 0 is locked up, 100 is open.
MOST_EXPOSED = 20


# -- systemd


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit with its drop-in, and with a program that exists: a missing one would be an error."""
    path = tmp_path / "raymc.service"
    path.write_text(UNIT.replace("/opt/raymc/bin/raymc", str(Path(sys.executable))))
    (tmp_path / "raymc.service.d").mkdir()
    shutil.copy(SYSTEMD / "raymc-postgres.conf", tmp_path / "raymc.service.d" / "postgres.conf")
    return path


needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="NOT TESTED: systemd-analyze is not installed"
)


@needs_systemd
def test_systemd_takes_the_unit_without_a_word(unit: Path) -> None:
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@needs_systemd
def test_a_wrong_unit_would_be_noticed(unit: Path) -> None:
    unit.write_text(unit.read_text().replace("ProtectSystem=strict", "ProtectSystem=sometimes"))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert "sometimes" in done.stderr


@needs_systemd
def test_the_service_is_locked_up(unit: Path) -> None:
    command = ["systemd-analyze", "security", "--offline=true", f"--threshold={MOST_EXPOSED}", "--no-pager"]
    done = subprocess.run(
        [*command, str(unit)], capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stdout.splitlines()[-1]


def test_the_unit_is_stopped_and_reloaded_as_the_server_wants() -> None:
    for line in (
        "User=raymc",
        "ExecReload=/bin/kill -HUP $MAINPID",
        "KillSignal=SIGTERM",
        "Restart=on-failure",
        "StateDirectory=raymc",
        "Environment=RAY_MULTICLUSTER_HOME=%S/raymc",
    ):
        assert f"\n{line}\n" in UNIT


def test_the_command_of_the_unit_is_one_of_ours() -> None:
    (start,) = re.findall(r"^ExecStart=/opt/raymc/bin/(.+)$", UNIT, re.M)
    example = (SYSTEMD / "raymc.env").read_text()
    (options,) = re.findall(r"^RAYMC_OPTIONS=(.+)$", example, re.M)
    parse_raymc(start.replace("$RAYMC_OPTIONS", options))
    (others,) = re.findall(r"^# Other options: (.+)$", example, re.M)
    parse_raymc(f"raymc serve {others}")


# -- names


def test_every_variable_of_ours_in_the_files_exists() -> None:
    known = {
        name
        for path in (ROOT / "src").rglob("*.py")
        for name in re.findall(r"RAY_MULTICLUSTER_[A-Z_]+", path.read_text())
    }
    named = {
        name
        for path in DEPLOY.rglob("*")
        if path.is_file()
        for name in re.findall(r"RAY_MULTICLUSTER_[A-Z_]+", path.read_text())
    }
    assert named <= known
    assert {"RAY_MULTICLUSTER_STORE", "RAY_MULTICLUSTER_STORE_PASSWORD_FILE"} <= named


def test_the_image_names_no_host_of_images() -> None:
    images = re.findall(r"^FROM (\S+)", DOCKERFILE, re.M)
    assert set(images) == {"python:3.11-slim"}


# -- the image


def test_the_image_installs_extras_that_exist() -> None:
    extras = metadata("ray-multicluster-scheduler").get_all("Provides-Extra") or []
    (named,) = re.findall(r"^ARG EXTRAS=(.+)$", DOCKERFILE, re.M)
    assert {"dashboard", "postgres", "tasks"} <= set(named.split(",")) <= set(extras)


def test_the_image_is_not_run_by_root_and_starts_the_server() -> None:
    (user,) = re.findall(r"^USER (\d+):\d+$", DOCKERFILE, re.M)
    assert int(user) > 0
    (entry,), (words,) = (
        re.findall(rf"^{word} \[(.+)\]$", DOCKERFILE, re.M) for word in ("ENTRYPOINT", "CMD")
    )
    parse_raymc(" ".join(yaml.safe_load(f"[{entry}, {words}]")))


def test_the_image_is_built_of_files_that_exist() -> None:
    ignored = (DOCKER / "Dockerfile.dockerignore").read_text().splitlines()
    for names in re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.M):
        for name in names.split():
            assert (ROOT / name).exists()
            assert f"!{name}" in ignored


def test_its_health_check_is_a_program_that_notices_a_server_that_is_gone() -> None:
    (check,) = re.findall(r"^    CMD (\[.+\])$", DOCKERFILE, re.M)
    python, option, program = yaml.safe_load(check)
    assert (python, option) == ("python", "-c")
    gone = program.replace(":8700", ":9")
    done = subprocess.run(
        [sys.executable, "-c", gone], capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert done.returncode == 1
    assert "refused" in done.stderr
