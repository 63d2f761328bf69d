"""What is in `deploy/` asks for metrics and labels that exist, and the page of the metrics lists them all."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from tests.docs.metric_names import Known, known_metrics
from tests.support.pages import DOCS, ROOT, table
from tests.support.waiting import PATIENCE_S

DEPLOY = ROOT / "deploy"
ALERTS = DEPLOY / "prometheus" / "raymc-alerts.yml"
SCRAPE = DEPLOY / "prometheus" / "prometheus.yml"
DASHBOARD = DEPLOY / "grafana" / "raymc.json"
#: Prometheus's own, and what it adds to each sample.
NOT_OURS = {"up", "process_resident_memory_bytes"}
ADDED_LABELS = {"instance", "job", "le"}
_NAME = re.compile(r"\b(raymc_\w+|up|process_\w+)\b")
_SELECTOR = re.compile(r"(\w+)\{([^}]*)\}")
_BY = re.compile(r"\bby \(([^)]*)\)")


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> list[Known]:
    return known_metrics(tmp_path_factory.mktemp("metrics"))


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def targets() -> Iterator[tuple[str, str]]:
    """Yield the expression of each target of the dashboard, and its legend."""
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"], target["legendFormat"]


def expressions() -> list[str]:
    return [rule["expr"] for rule in rules()] + [expr for expr, _ in targets()]


def asked(expression: str) -> set[str]:
    return set(_NAME.findall(re.sub(r'"[^"]*"', '""', expression)))


@pytest.mark.parametrize("expression", expressions())
def test_every_expression_asks_for_metrics_and_labels_that_exist(known: list[Known], expression: str) -> None:
    by_sample = {sample: metric for metric in known for sample in metric.samples}
    names = asked(expression)
    assert names
    assert names <= {*by_sample, *NOT_OURS}
    labels = {label for name in names - NOT_OURS for label in by_sample[name].labels} | ADDED_LABELS
    used = {word.strip() for words in _BY.findall(expression) for word in words.split(",")}
    used |= {
        pair.split("=")[0].strip("!~ ")
        for _, pairs in _SELECTOR.findall(expression)
        for pair in pairs.split(",")
    }
    assert used <= labels
    assert expression.count("(") == expression.count(")")


def test_the_check_finds_what_does_not_exist(known: list[Known]) -> None:
    assert asked('sum(rate(raymc_gone_total{a="raymc_jobs"}[5m]))') == {"raymc_gone_total"}
    assert "raymc_gone_total" not in {sample for metric in known for sample in metric.samples}


def test_reasons_and_steps_that_expressions_name_exist() -> None:
    from ray_multicluster_scheduler.model.decision import REASONS
    from ray_multicluster_scheduler.model.states import JobState
    from ray_multicluster_scheduler.server.metrics import STEPS, WHOLE_WAY

    words = {
        "reason": {*REASONS},
        "step": {*STEPS.values(), WHOLE_WAY},
        "state": {*(s.value for s in JobState)},
    }
    found = dict.fromkeys(words, 0)
    for expression in expressions():
        for label, _, value in re.findall(r'(\w+)(=~?)"([^"]*)"', expression):
            if label in words:
                found[label] += 1
                assert set(value.split("|")) <= words[label]
    assert all(found.values())


def test_legends_name_labels_that_the_result_still_has() -> None:
    for expression, legend in targets():
        kept = {word.strip() for words in _BY.findall(expression)[:1] for word in words.split(",")}
        for label in re.findall(r"\{\{(\w+)\}\}", legend):
            assert not kept or label in kept, expression


def test_every_alert_says_what_happened_and_what_to_do() -> None:
    assert len({rule["alert"] for rule in rules()}) == len(rules()) >= 10
    for rule in rules():
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert {"summary", "description"} == rule["annotations"].keys()
        assert re.fullmatch(r"\d+m", rule["for"])


def test_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken
        taken |= cells


def test_the_scrape_example_names_the_rules_and_carries_no_secret() -> None:
    scrape = yaml.safe_load(SCRAPE.read_text())
    assert [SCRAPE.parent / name for name in scrape["rule_files"]] == [ALERTS]
    (job,) = scrape["scrape_configs"]
    assert (job["metrics_path"], job["authorization"].keys()) == ("/metrics", {"type", "credentials_file"})


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_takes_the_rules() -> None:
    subprocess.run(["promtool", "check", "rules", str(ALERTS)], check=True, timeout=PATIENCE_S)


@pytest.mark.parametrize(
    ("page", "head"),
    [
        ("metrics.md", ("Metric", "Kind", "Labels", "Meaning")),
        ("metrics.zh-CN.md", ("指标", "类型", "标签", "含义")),
    ],
)
def test_the_page_lists_every_metric_with_its_labels(known: list[Known], page: str, head: Any) -> None:
    rows = [list(row.values()) for row in table(DOCS / page, *head)]
    assert [row[:3] for row in rows] == [
        [f"`{metric.shown}`", metric.kind, ", ".join(f"`{label}`" for label in metric.labels)]
        for metric in known
    ]
    assert all(meaning for *_, meaning in rows)


@pytest.mark.parametrize("page", ["metrics.md", "metrics.zh-CN.md"])
def test_the_page_lists_every_reason(page: str) -> None:
    from ray_multicluster_scheduler.model.decision import REASONS

    text = (DOCS / page).read_text()
    assert [reason for reason in REASONS if f"| `{reason}` |" not in text] == []
