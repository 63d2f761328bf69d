"""The page about deployment: what can run here is run, and the rest names what there is."""

import re
import shlex
from pathlib import Path

import pytest
from tests.docs.test_commands import parse_raymc
from tests.docs.test_deploy import asked, rules
from tests.support.pages import DOCS, ROOT, blocks, commands, table

PAGES = [DOCS / "deployment.md", DOCS / "deployment.zh-CN.md"]
PAGE = PAGES[0]
DEPLOY = ROOT / "deploy"
#: Files of the reader's that commands name.
READERS = {"store_password"}
HEADERS = {PAGE: ("alert", "it looks at", "first do"), PAGES[1]: ("告警", "依据", "首先做")}

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def shown() -> list[str]:
    return [command for block in blocks("bash", pages=[PAGE]) for command in commands(block)]


def test_commands_of_ours_are_accepted_wherever_they_are_run() -> None:
    found = 0
    for command in shown():
        before, name, options = command.partition("/bin/raymc ")
        if name and before.startswith("sudo "):
            parse_raymc(f"raymc {options}")
            found += 1
    assert found == 1


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


@each_page
def test_every_alert_is_there_with_the_metric_that_it_looks_at(page: Path) -> None:
    alert, metric, first = HEADERS[page]
    rows = {row[alert].strip("`"): row[metric].strip("`") for row in table(page, alert, metric, first)}
    assert list(rows) == [rule["alert"] for rule in rules()]
    for rule in rules():
        assert any(name.startswith(rows[rule["alert"]]) for name in asked(rule["expr"])), rule["alert"]


@each_page
def test_every_file_that_it_names_exists(page: Path) -> None:
    text = page.read_text()
    for name in re.findall(r"`(deploy/[\w./-]+)`", text):
        assert (ROOT / name).exists(), name


def test_its_options_of_nginx_and_of_the_servers_agree() -> None:
    stream = (DEPLOY / "nginx" / "raymc-stream.conf").read_text()
    for page in PAGES:
        for port in re.findall(r"`--client-port (\d+)`", page.read_text()):
            assert f"127.0.0.1:{port}" in stream
        (port,) = re.findall(r"`--port (\d+)`", page.read_text())
        assert f"127.0.0.1:{port}" in (DEPLOY / "nginx" / "raymc.conf").read_text()
