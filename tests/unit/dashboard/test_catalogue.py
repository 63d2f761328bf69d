"""The catalogue has every text that the pages ask for, in both languages, and no other."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from string import Formatter

import pytest
import yaml

from ray_multicluster_scheduler import dashboard
from ray_multicluster_scheduler.cluster_health.diagnosis import Verdict
from ray_multicluster_scheduler.core.lifecycle.transitions import NOT_SENT, REPLACED, REQUEUED_OUTCOME
from ray_multicluster_scheduler.core.placement.scoring import part_names
from ray_multicluster_scheduler.dashboard.pages.timeline_page import WINDOWS
from ray_multicluster_scheduler.dashboard.words import LANGUAGES, catalogue, preferred
from ray_multicluster_scheduler.environment.compose import BOTH, CLUSTER, JOB, SCHEDULER
from ray_multicluster_scheduler.inspection import clusters
from ray_multicluster_scheduler.model.cluster import Health
from ray_multicluster_scheduler.model.decision import REASONS, Cause
from ray_multicluster_scheduler.model.execution import FailureKind
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.ray_api import parse
from ray_multicluster_scheduler.service.caller import Role

FOLDER = Path(dashboard.__file__).parent
PYTHON = [*FOLDER.rglob("*.py"), FOLDER.parent / "server" / "login_page.py"]
SECTIONS = {key.partition(".")[0] for key in catalogue()}
KEY = re.compile(rf"(?:{'|'.join(sorted(SECTIONS))})\.[A-Za-z_0-9]+")
#: What is written alike in both languages.
ALIKE = re.compile(
    r"[\W\d_]|CPU|GPU|ID|URL|REST|Ray|raymc|Python|JSON|YAML|PID|conda|pip|uv|JobID|GiB|MiB|actor", re.A
)
CHINESE = re.compile("[\u4e00-\u9fff]")


@cache
def trees() -> tuple[ast.Module, ...]:
    return tuple(ast.parse(path.read_text(), path.name) for path in PYTHON)


def constants() -> set[str]:
    """Return all texts in the code, but for parts of texts that are put together."""
    found = [node for tree in trees() for node in ast.walk(tree)]
    parts = {id(part) for node in found if isinstance(node, ast.JoinedStr) for part in node.values}
    return {
        node.value
        for node in found
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts
    }


def patterns() -> Iterator[tuple[str, re.Pattern[str]]]:
    """Yield the keys that are put together, with a group for each part that changes."""
    for node in (node for tree in trees() for node in ast.walk(tree)):
        if isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
            start = str(node.values[0].value)
            if "." in start and start.partition(".")[0] in SECTIONS:
                parts = [
                    re.escape(str(v.value)) if isinstance(v, ast.Constant) else "(.+)" for v in node.values
                ]
                yield ast.unparse(node), re.compile("".join(parts))


def told_by_others() -> set[str]:
    """The words that come from the service, and fill such keys."""
    words = {each.value for enum in (JobState, Health, Cause, Verdict) for each in enum}
    words |= set(REASONS) | {role.word for role in Role} | {"DRAINED"}
    words |= {*parse._BY_ERROR_TYPE}
    words |= {*part_names(), *map(str, WINDOWS), BOTH, CLUSTER, JOB, SCHEDULER}
    return words | outcomes() | kinds_of_processes()


def outcomes() -> set[str]:
    """How attempts end."""
    named = {NOT_SENT, REPLACED, *REQUEUED_OUTCOME.values()}
    return {kind.value for kind in FailureKind} | {state.value for state in JobState} | named


def kinds_of_processes() -> set[str]:
    """What `inspection/clusters.py` calls the things that it finds."""
    source = Path(clusters.__file__).read_text()
    return set(re.findall(r'kind(?:, what)?(?:, why)? ?= ?"(\w+)"', source))


def test_every_text_that_is_asked_for_is_there() -> None:
    asked = {text for text in constants() if KEY.fullmatch(text)}
    assert asked - catalogue().keys() == set()


def test_keys_that_are_put_together_match_some() -> None:
    for where, pattern in patterns():
        assert any(pattern.fullmatch(key) for key in catalogue()), where


def test_every_text_is_used() -> None:
    said = constants()
    known = said | told_by_others() | {word for text in said for word in re.findall(r"\w+", text)}
    made = [pattern for _, pattern in patterns()]
    unused = {
        key
        for key in catalogue()
        if key not in said
        and not any(
            found and set(found.groups()) <= known for found in (each.fullmatch(key) for each in made)
        )
    }
    assert unused == set()


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_text_is_there_in_each_language(language: str) -> None:
    for key, texts in catalogue().items():
        assert set(texts) == set(LANGUAGES), key
        assert isinstance(texts[language], str), f"{key} needs quotes in its file"
        assert texts[language].strip() == texts[language] != "", key


def test_both_languages_have_the_same_places_for_values() -> None:
    def places(text: str) -> set[str | None]:
        return {name for _, name, _, _ in Formatter().parse(text) if name is not None}

    for key, texts in catalogue().items():
        assert places(texts["en"]) == places(texts["zh"]), key


def test_chinese_texts_are_chinese_and_english_ones_are_not() -> None:
    for key, texts in catalogue().items():
        words = re.sub(r"\{\w*\}", "", texts["zh"])
        assert CHINESE.search(words) or not ALIKE.sub("", words), f"{key}: {texts['zh']}"
        assert not CHINESE.search(texts["en"]), f"{key}: {texts['en']}"


def test_states_reasons_and_roles_have_their_texts() -> None:
    needed = {
        *(f"states.{state.value}" for state in JobState),
        *(f"health.{health.value}" for health in Health),
        "health.DRAINED",
        *(f"environment.of_{origin}" for origin in (BOTH, CLUSTER, JOB, SCHEDULER)),
        *(f"decision.part_{part}" for part in part_names()),
        *(f"reasons.{reason}" for reason in REASONS),
        *(f"reasons.{cause.value}" for cause in Cause),
        *(f"roles.{role.word}" for role in Role),
        *(f"outcomes.{outcome}" for outcome in outcomes() - {state.value for state in JobState}),
        *(f"error_types.{kind}" for kind in parse._BY_ERROR_TYPE),
        *(f"processes.kind_{kind}" for kind in kinds_of_processes()),
    }
    assert needed - catalogue().keys() == set()


def test_no_key_stands_twice_in_a_file() -> None:
    for path in (FOLDER / "catalogue").glob("*.yaml"):
        keys = re.findall(r"^([^\s:#]+):", path.read_text(), re.M)
        assert len(keys) == len(set(keys)) == len(yaml.safe_load(path.read_text())), path.name


@pytest.mark.parametrize(
    ("chosen", "accepted", "language"),
    [
        (None, "", "en"),
        (None, "zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        (None, "fr,zh;q=0.5", "zh"),
        (None, "fr", "en"),
        ("zh", "en", "zh"),
        ("fr", "zh", "zh"),
        ("", "en-GB", "en"),
    ],
)
def test_a_choice_counts_more_than_what_the_browser_prefers(
    chosen: str | None, accepted: str, language: str
) -> None:
    assert preferred(chosen, accepted) == language
