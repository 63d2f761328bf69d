"""The page about deployment: what can run here is run, and the rest names what there is."""

import re
import shlex
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
import yaml
from tests.docs.pages import DOCS, ROOT, blocks, commands, table
from tests.docs.test_commands import parse_raymc
from tests.docs.test_deploy import asked, rules
from tests.docs.test_deploy_services import compose
from tests.docs.test_helm_chart import HELM, helm
from tests.oracle import PATIENCE_S

PAGES = [DOCS / "deployment.md", DOCS / "deployment.zh-CN.md"]
PAGE = PAGES[0]
DEPLOY = ROOT / "deploy"
#: Files of the reader's that commands name.
READERS = {"store_password", "gpu_token"}
HEADERS = {PAGE: ("alert", "it looks at", "first do"), PAGES[1]: ("告警", "依据", "首先做")}

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def shown() -> list[str]:
    return [command for block in blocks("bash", pages=[PAGE]) for command in commands(block)]


def test_commands_of_ours_are_accepted_wherever_they_are_run() -> None:
    found = 0
    for command in shown():
        words = shlex.split(command.partition(" > ")[0])
        if words[:2] == ["docker", "compose"] and "run" in words:
            words = words[words.index("raymc-1") :]
        names = [at for at, word in enumerate(words) if Path(word).name in {"raymc", "raymc-1"}]
        if names and words[names[-1] + 1 : names[-1] + 2] == ["token"]:
            parse_raymc(shlex.join(["raymc", *words[names[-1] + 1 :]]))
            found += 1
    assert found == 4


def test_what_is_installed_exists_and_goes_where_the_files_say() -> None:
    installed = {}
    for command in shown():
        if command.startswith("sudo install "):
            *_, source, target = shlex.split(command)
            assert source in READERS or (ROOT / source).is_file()
            installed[target] = source
    said = "\n".join(
        path.read_text() for folder in ("systemd", "nginx") for path in (DEPLOY / folder).iterdir()
    )
    for target, source in installed.items():
        folder = str(Path(target).parent)
        assert target in said or (f"{folder}/ " in said and Path(source).name in said), target
    unit = (DEPLOY / "systemd" / "raymc.service").read_text()
    assert set(re.findall(r"=-?(/etc/\S+)", unit)) <= installed.keys()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="NOT TESTED: openssl is not installed")
def test_what_comes_before_docker_makes_what_compose_wants(tmp_path: Path) -> None:
    shutil.copytree(
        DEPLOY / "docker", tmp_path / "deploy" / "docker", ignore=shutil.ignore_patterns("secrets")
    )
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    (block,) = [each for each in blocks("bash", pages=[PAGE]) if each.text.startswith("cd deploy/docker\n")]
    mine = [command for command in commands(block) if not command.startswith("docker ")]
    done = subprocess.run(
        ["sh", "-ec", "\n".join(mine)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    docker = tmp_path / "deploy" / "docker"
    assert (docker / "config" / "clusters.yaml").is_file()
    assert stat.S_IMODE((docker / "secrets").stat().st_mode) == 0o700
    later = {command.rpartition(" > ")[2] for command in commands(block) if command.startswith("docker ")}
    for secret in compose()["secrets"].values():
        if secret["file"] not in later:
            assert stat.S_IMODE((docker / secret["file"]).stat().st_mode) == 0o444


def test_docker_is_asked_for_services_that_there_are() -> None:
    services = compose()["services"]
    named = {word for command in shown() if command.startswith("docker ") for word in command.split()}
    assert {word for word in named if word.startswith("raymc")} == {"raymc-1", "raymc-2"}
    assert {"raymc-1", "raymc-2"} <= services.keys()


def test_the_secrets_of_kubernetes_are_those_of_the_example() -> None:
    made = {
        (words[5], word.removeprefix("--from-file=").partition("=")[0])
        for command in shown()
        if "create secret generic" in command
        for words in [shlex.split(command)[1:]]
        for word in words
        if word.startswith("--from-file=")
    }
    example = yaml.safe_load((DEPLOY / "helm/raymc/examples/kuberay-values.yaml").read_text())
    password = example["store"]["passwordSecret"]
    tokens = {(each["secretName"], each["key"]) for each in example["clusterTokens"]}
    assert made == {(password["name"], password["key"]), *tokens}


@pytest.mark.skipif(HELM is None, reason="NOT TESTED: helm is not installed")
def test_what_helm_is_told_makes_the_deployment_that_the_next_commands_name() -> None:
    (command,) = [each for each in shown() if each.startswith("helm ")]
    words = shlex.split(command.replace("deploy/helm", str(DEPLOY / "helm")))
    assert words[:3] == ["helm", "upgrade", "--install"]
    done = helm("template", *words[3:])
    assert done.returncode == 0, done.stderr
    (deployment,) = [each for each in yaml.safe_load_all(done.stdout) if each["kind"] == "Deployment"]
    assert deployment["metadata"]["name"] == "raymc"
    assert deployment["spec"]["template"]["spec"]["initContainers"][0]["name"] == "first-token"
    assert sum("deploy/raymc" in each for each in shown() if each.startswith("kubectl ")) == 2


@each_page
def test_every_alert_is_there_with_the_metric_that_it_looks_at(page: Path) -> None:
    alert, metric, first = HEADERS[page]
    text = page.read_text()
    assert f"| {alert} | {metric} | {first} |" in text
    rows = {row[alert].strip("`"): row[metric].strip("`") for row in table(page, alert, metric, first)}
    assert list(rows) == [rule["alert"] for rule in rules()]
    for rule in rules():
        assert any(name.startswith(rows[rule["alert"]]) for name in asked(rule["expr"])), rule["alert"]


@each_page
def test_every_file_that_it_names_exists(page: Path) -> None:
    text = page.read_text()
    for name in re.findall(r"`(deploy/[\w./-]+)`", text):
        assert (ROOT / name).exists(), name
    for name in re.findall(r"`(examples/[\w./-]+-values\.yaml)`", text):
        assert (DEPLOY / "helm" / "raymc" / name).is_file()


def test_its_options_of_nginx_and_of_the_servers_agree() -> None:
    stream = (DEPLOY / "nginx" / "raymc-stream.conf").read_text()
    for page in PAGES:
        for port in re.findall(r"`--client-port (\d+)`", page.read_text()):
            assert f"127.0.0.1:{port}" in stream
        (port,) = re.findall(r"`--port (\d+)`", page.read_text())
        assert f"127.0.0.1:{port}" in (DEPLOY / "nginx" / "raymc.conf").read_text()
