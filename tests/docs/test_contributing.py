"""CONTRIBUTING names only what there is, and each of its lists is held by a test."""

import importlib
import importlib.util
import re

import pytest
from tests.support.pages import DOCS, ROOT
from tests.unit.test_layers import SRC

from ray_multicluster_scheduler.cli.registry import Commands
from ray_multicluster_scheduler.core.placement import checks, scoring
from ray_multicluster_scheduler.core.placement.scoring import Rule

TEXT = (ROOT / "CONTRIBUTING.md").read_text()
#: Each list, and the test that fails when what it says is not enough.
LISTS = {
    "A field of a job": "tests/integration/test_exercises.py",
    "A setting": "tests/docs/test_configuration_docs.py",
    "A command": "tests/integration/test_exercises.py",
    "A reason to refuse a cluster": "tests/integration/test_new_rule.py",
    "An executor": "tests/integration/test_third_executor.py",
    "A part of the score": "tests/integration/test_exercises.py",
    "A public function": "tests/docs/test_reference.py",
    "A decision worth remembering": "tests/docs/test_contributing.py",
}
ADDING = TEXT.partition("## How to add")[2]
PATHS = [word for word in re.findall(r"`([^`\n]+)`", TEXT) if re.fullmatch(r"[\w.-]+(/[\w.-]*)+", word)]
MODULES = sorted(set(re.findall(r"python -m ([\w.]+)", TEXT)))
#: Names of the code in quotes, and where they are.
NAMES = {
    "CHECKS": "core.placement.checks",
    "ResourceCheck": "core.placement.checks",
    "FACTORS": "core.placement.scoring",
    "BONUSES": "core.placement.scoring",
    "QueuedJob": "model.decision",
    "ClusterView": "model.decision",
    "Cause": "model.decision",
    "Capabilities": "model.execution",
    "ExecutorKind": "executors.contract",
    "JobOptions": "model.job_options",
    "JobSpec": "model.job",
    "JobRequest": "service.request",
    "runtime_env": "service.request",
    "resource_requirements": "service.request",
    "JobView": "service.views",
    "submit_job": "client.job_functions",
    "get_job_info": "client.job_functions",
    "explain": "client.job_functions",
}


def test_every_list_has_its_test() -> None:
    assert set(re.findall(r"^\*\*([^*]+)\.\*\*", TEXT, re.M)) == LISTS.keys()
    assert [test for test in LISTS.values() if not (ROOT / test).exists()] == []


@pytest.mark.parametrize("path", PATHS)
def test_every_path_is_there(path: str) -> None:
    assert (ROOT / path).exists() or (SRC / path).exists()


@pytest.mark.parametrize("module", MODULES)
def test_every_module_to_run_is_there(module: str) -> None:
    assert importlib.util.find_spec(module) is not None


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`([A-Z]\w+|\w+_\w+)`", ADDING))))
def test_every_name_is_there(name: str) -> None:
    home = importlib.import_module(f"ray_multicluster_scheduler.{NAMES[name]}")
    assert hasattr(home, name) or name in home.JobRequest.model_fields


@pytest.mark.parametrize("target", sorted(set(re.findall(r"`make ([\w-]+)`", TEXT))))
def test_every_recipe_is_there(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.M)


def test_what_is_in_the_tuples_is_what_the_lists_say() -> None:
    assert all(isinstance(check, (Rule, checks.ResourceCheck)) for check in checks.CHECKS)
    assert all(isinstance(part, Rule) for part in (*scoring.FACTORS, *scoring.BONUSES))


def test_every_command_is_a_module_of_its_folder() -> None:
    modules = {entry.where.partition(":")[0] for entry in Commands.entries.values()}
    assert [name for name in modules if not (SRC / "cli" / "commands" / f"{name}.py").exists()] == []


def test_decisions_are_numbered_without_a_gap_and_fit_on_a_page() -> None:
    pages = sorted((DOCS / "decisions").glob("[0-9]*.md"))
    assert [page.name[:4] for page in pages] == [f"{number:04}" for number in range(1, len(pages) + 1)]
    for page in pages:
        text = page.read_text()
        assert all(f"**{part}.**" in text for part in ("Context", "Decision", "Consequences")), page.name
        assert len(text.splitlines()) <= 60, page.name
