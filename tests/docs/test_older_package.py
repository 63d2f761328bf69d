"""The page for those who come from the older package: what it names is there."""

import re

import pytest
from tests.support.pages import ROOT

import ray_multicluster_scheduler as package
from ray_multicluster_scheduler import errors
from ray_multicluster_scheduler.app import client_api
from ray_multicluster_scheduler.common import exception
from ray_multicluster_scheduler.config.schema import ClusterEntry

PAGES = [ROOT / "docs" / "how-to" / f"from-the-older-package{end}.md" for end in ("", ".zh-CN")]
_FUNCTION = re.compile(r"\b((?:submit|get|wait|list|explain|init)_[a-z_]+|explain)\(")


def columns(page: str) -> list[list[str]]:
    rows = [line.strip("|").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    return [row for row in rows if len(row) == 3]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_what_the_page_says_to_write_exists(path: object) -> None:
    text = path.read_text()  # type: ignore[attr-defined]
    written = " ".join(row[2] for row in columns(text))
    functions = set(_FUNCTION.findall(written))
    assert {"submit_actor", "get_task_result"} <= functions
    assert all(hasattr(package, name) for name in functions)
    assert all(hasattr(errors, name) for name in re.findall(r"errors import (\w+)", written))
    for setting in ("max_running_jobs", "max_resources"):
        assert setting in written
        assert setting in ClusterEntry.model_fields


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_what_the_page_imports_is_there(path: object) -> None:
    block = path.read_text().split("```python\n")[1].split("```")[0]  # type: ignore[attr-defined]
    names = re.findall(r"^    (\w+),$", block, flags=re.M)
    assert names
    assert all(hasattr(client_api, name) for name in names)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_its_errors_are_there_under_its_names(path: object) -> None:
    older = " ".join(row[0] for row in columns(path.read_text()))  # type: ignore[attr-defined]
    names = re.findall(r"\b[A-Z]\w+Error\b", older)
    assert names
    assert all(issubclass(getattr(exception, name), errors.SchedulerError) for name in names)
    assert issubclass(errors.ConfigNotFound, exception.ConfigurationError)
    assert issubclass(errors.ConfigInvalid, exception.ConfigurationError)


def test_a_program_knows_on_which_cluster_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_MULTICLUSTER_CLUSTER", raising=False)
    assert client_api.submit_actor.get_current_cluster_context() is None  # type: ignore[attr-defined]
    monkeypatch.setenv("RAY_MULTICLUSTER_CLUSTER", "mac")
    assert client_api.submit_task.get_current_cluster_context() == "mac"  # type: ignore[attr-defined]


def test_both_pages_have_the_same_rows() -> None:
    english, chinese = (columns(page.read_text()) for page in PAGES)
    assert len(english) == len(chinese) > 15
