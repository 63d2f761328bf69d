"""The unit, the image and the compose file in `deploy/` are held to the code, and to their own tools."""

import re
import shlex
import shutil
import subprocess
import sys
from importlib.metadata import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.contract.test_ray_api_tls import write_certificate
from tests.docs.pages import ROOT
from tests.docs.test_commands import parse_raymc
from tests.integration.nginx_front import NGINX, stream_module
from tests.oracle import PATIENCE_S

from ray_multicluster_scheduler.version import VERSION

DEPLOY = ROOT / "deploy"
SYSTEMD, DOCKER = DEPLOY / "systemd", DEPLOY / "docker"
UNIT = (SYSTEMD / "raymc.service").read_text()
DOCKERFILE = (DOCKER / "Dockerfile").read_text()
COMPOSE = DOCKER / "compose.yaml"
#: A score of `systemd-analyze security`, times ten: 0 is locked up, 100 is open.
MOST_EXPOSED = 20


def compose() -> dict[str, Any]:
    """Return the compose file with the defaults of its variables."""
    text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", COMPOSE.read_text())
    assert "${" not in text
    loaded: dict[str, Any] = yaml.safe_load(text)
    return loaded


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


def test_no_file_names_a_host_of_images_or_packages() -> None:
    images = re.findall(r"^FROM (\S+)", DOCKERFILE, re.M)
    assert set(images) == {"python:3.11-slim"}
    for name, service in compose()["services"].items():
        assert re.fullmatch(r"[a-z-]+(/[a-z-]+)?:v?[\d.]+", service["image"]), name


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


# -- compose


def test_compose_names_nothing_that_it_does_not_have() -> None:
    whole = compose()
    for name, service in whole["services"].items():
        assert {"image", "restart", "networks"} <= service.keys(), name
        assert set(service["networks"]) <= whole["networks"].keys()
        assert set(service.get("secrets", ())) <= whole["secrets"].keys()
        assert set(service.get("depends_on", ())) <= whole["services"].keys()
        for volume in service.get("volumes", ()):
            if volume.startswith("/"):
                continue  # a volume of its own, without a name
            source, target, *_ = volume.split(":")
            assert target.startswith("/")
            if source == "./config":
                continue  # the reader's
            assert (DOCKER / source).exists() if source.startswith(".") else source in whole["volumes"]
    used = {each for service in whole["services"].values() for each in service.get("secrets", ())}
    assert used == whole["secrets"].keys()


def test_secrets_are_files_that_git_does_not_take() -> None:
    ignored = (DOCKER / ".gitignore").read_text().splitlines()
    assert {"/secrets/", "/config/"} <= set(ignored)
    for secret in compose()["secrets"].values():
        assert secret["file"].startswith("secrets/")
    for service in compose()["services"].values():
        for variable, value in service.get("environment", {}).items():
            if re.search("PASSWORD|TOKEN|SECRET", variable):
                assert variable.endswith("FILE")
                assert value.removeprefix("/run/secrets/") in service["secrets"]


def test_two_servers_share_a_store_and_answer_to_the_names_that_others_use() -> None:
    services = compose()["services"]
    servers = {name: each for name, each in services.items() if name.startswith("raymc-")}
    assert len(servers) == 2
    proxy = (DOCKER / "compose-nginx.conf").read_text()
    scrape = yaml.safe_load((DOCKER / "compose-prometheus.yml").read_text())
    (job,) = scrape["scrape_configs"]
    assert job["static_configs"][0]["targets"] == [f"{name}:8700" for name in servers]
    for name, server in servers.items():
        assert server["hostname"] == name
        assert server["image"] == f"raymc:{VERSION}"
        assert server["read_only"]
        assert f"server {name}:8700" in proxy
        parse_raymc(shlex.join(["raymc", *server["command"]]))
        writable = [volume for volume in server["volumes"] if not volume.endswith(":ro")]
        assert writable == ["/var/lib/raymc"], "servers share nothing but the database"
    first, second = ({**server, "hostname": None} for server in servers.values())
    assert first == second


def test_prometheus_of_compose_is_that_of_the_example_but_for_its_servers() -> None:
    here, example = (
        yaml.safe_load(path.read_text())
        for path in (DOCKER / "compose-prometheus.yml", DEPLOY / "prometheus" / "prometheus.yml")
    )
    for scrape in (here, example):
        (job,) = scrape["scrape_configs"]
        del job["static_configs"], job["authorization"]["credentials_file"]
    assert here == example


@pytest.mark.skipif(
    NGINX is None or stream_module() is None,
    reason="NOT TESTED: nginx with its stream module is not installed",
)
def test_nginx_takes_the_file_of_compose(tmp_path: Path) -> None:
    write_certificate(tmp_path / "own.pem")
    text = (DOCKER / "compose-nginx.conf").read_text()
    text = re.sub(r"/run/secrets/tls\.\w+", str(tmp_path / "own.pem"), text)
    text = re.sub(r"raymc-\d:", "127.0.0.1:", text).replace("/run/nginx.pid", str(tmp_path / "pid"))
    (tmp_path / "nginx.conf").write_text(f"{stream_module()}{text}")
    shutil.copytree(DEPLOY / "nginx", tmp_path / "raymc")
    command = [str(NGINX), "-t", "-e", "stderr", "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr


def has_compose() -> bool:
    if shutil.which("docker") is None:
        return False
    asked = subprocess.run(
        ["docker", "compose", "version"], capture_output=True, check=False, timeout=PATIENCE_S
    )
    return asked.returncode == 0


@pytest.mark.skipif(not has_compose(), reason="NOT TESTED: docker compose is not installed")
def test_docker_takes_the_compose_file() -> None:
    command = ["docker", "compose", "--file", str(COMPOSE), "config", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
