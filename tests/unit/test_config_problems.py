"""A wrong clusters.yaml gets one message with every problem, its line, and what to write instead."""

from pathlib import Path

import pytest

from ray_multicluster_scheduler.config import load_config, parse_config
from ray_multicluster_scheduler.config.document import MAX_DEPTH
from ray_multicluster_scheduler.config.load import MAX_BYTES
from ray_multicluster_scheduler.errors import ConfigInvalid

PATH = Path("/etc/raymc/clusters.yaml")
SECRET = "0f3a9c5b7d1e2468ace013579bdf8642"


def problems_of(text: str) -> tuple[str, ...]:
    with pytest.raises(ConfigInvalid) as caught:
        parse_config(text, PATH)
    assert str(caught.value).startswith(str(PATH))
    assert SECRET not in str(caught.value)
    return caught.value.problems


def problem_of(text: str) -> str:
    (problem,) = problems_of(text)
    return problem


def mac(*lines: str) -> str:
    """A file whose only cluster has these lines from line 4 on."""
    return "\n".join(
        ["clusters:", "  mac:", "    head_address: mac:10001", *(f"    {line}" for line in lines)]
    )


MALFORMED = {
    "unknown key": (mac("wieght: 2"), ["line 4", "clusters.mac.wieght", "unknown key", "'weight'"]),
    "unknown key unlike any other": (mac("zzz: 2"), ["line 4", "clusters.mac.zzz", "known are", "dashboard"]),
    "unknown section": (mac() + "\nschedular: {}", ["line 4", "schedular", "'scheduler'"]),
    "unknown setting": (
        mac() + "\nscheduler:\n  probe_interval: 3",
        ["line 5", "scheduler.probe_interval", "'probe_interval_s'"],
    ),
    "setting out of bounds": (
        mac() + "\nscheduler: {probe_timeout_s: 0}",
        ["line 4", "scheduler.probe_timeout_s", "0.1 or more", "found 0"],
    ),
    "no head_address": (
        "clusters:\n  mac:\n    weight: 1",
        ["line 2", "clusters.mac.head_address", "missing", "host:port"],
    ),
    "entry without content": ("clusters:\n  mac:", ["line 2", "clusters.mac.head_address", "missing"]),
    "entry that is text": ("clusters:\n  mac: mac:10001", ["line 2", "a mapping", "found 'mac:10001'"]),
    "head_address with a web address": (
        "clusters:\n  mac:\n    head_address: http://mac:8265",
        ["line 3", "host:port", "found 'http://mac:8265'", "under `dashboard`"],
    ),
    "head_address with an impossible port": (
        "clusters: {mac: {head_address: 'mac:70000'}}",
        ["line 1", "host:port", "found 'mac:70000'"],
    ),
    "dashboard that is no URL": (
        mac("dashboard: mac:8265"),
        ["line 4", "clusters.mac.dashboard", "http://10.0.0.5:8265", "found 'mac:8265'"],
    ),
    "dashboard with an impossible port": (mac("dashboard: http://mac:70000"), ["line 4", "URL such as"]),
    "dashboard with a query": (mac("dashboard: http://mac?a=1"), ["line 4", "URL such as"]),
    "dashboard with a password": (
        mac(f"dashboard: http://me:{SECRET}@mac:8265"),
        ["line 4", "without user:password@", "auth_token_env"],
    ),
    "weight of zero": (mac("weight: 0"), ["line 4", "clusters.mac.weight", "more than 0", "found 0"]),
    "weight without end": (mac("weight: .inf"), ["line 4", "a finite number", "found inf"]),
    "word instead of a number": (mac("weight: heavy"), ["line 4", "a number", "found 'heavy'"]),
    "half a job": (mac("max_running_jobs: 2.5"), ["line 4", "a whole number", "found 2.5"]),
    "quoted boolean": (mac('prefer: "yes"'), ["line 4", "true or false", "found 'yes'"]),
    "tags as text": (mac("tags: gpu"), ["line 4", "clusters.mac.tags", "a list", "found 'gpu'"]),
    "empty tag": (mac("tags:", "  - gpu", "  - ''"), ["line 6", "clusters.mac.tags[1]", "not be empty"]),
    "negative resource": (
        mac("max_resources:", "  CPU: -1"),
        ["line 4", "clusters.mac.max_resources", "'CPU'", "negative"],
    ),
    "token instead of a variable": (
        mac(f"auth_token_env: a{SECRET}"),
        ["line 4", "NAME of the environment variable", "not shown"],
    ),
    "token that YAML reads as a number": (
        mac("auth_token_env: 12345678"),
        ["line 4", "text", "found a number"],
    ),
    "tls_ca without https": (mac("tls_ca: ca.pem"), ["line 2", "clusters.mac", "tls_ca", "https://"]),
    "runtime_env as text": (mac(f"runtime_env: {SECRET}"), ["line 4", "a mapping", "found text"]),
    "unknown option of an environment": (
        mac("runtime_env:", "  conda: ts", "  envvars: {A: b}"),
        ["line 6", "clusters.mac.runtime_env.envvars", "'env_vars'"],
    ),
    "options that Ray does not take together": (
        mac("runtime_env:", "  conda: ts", "  uv: [pandas]"),
        ["line 4", "clusters.mac.runtime_env: uv cannot add packages", "'ts'"],
    ),
    "impossible name": (
        "clusters:\n  -mac: {head_address: a}",
        ["line 2", "clusters.-mac", "starts with a letter", "found '-mac'"],
    ),
    "list without name": (
        "clusters:\n  - head_address: a\n",
        ["line 2", "clusters[0].name", "missing"],
    ),
    "one name twice in a list": (
        "clusters:\n  - {name: a, head_address: a}\n  - {name: a, head_address: b}\n",
        ["line 3", "clusters[1].name", "'a'", "line 2"],
    ),
    "one key twice": (
        mac("weight: 1", "weight: 2"),
        ["line 5", "clusters.mac.weight", "written twice", "line 4"],
    ),
    "one cluster twice": (
        mac("weight: 1") + "\n  mac:\n    head_address: b",
        ["line 5", "clusters.mac", "written twice", "line 2"],
    ),
    "one dashboard twice": (
        mac() + "\n  ipad:\n    head_address: mac:10002",
        ["line 4", "clusters.ipad.dashboard", "http://mac:8265", "'mac'"],
    ),
    "no clusters": ("clusters: {}", ["line 1", "clusters", "at least one"]),
    "clusters missing": ("scheduler: {}", ["line 1", "clusters", "at least one", "found nothing"]),
    "empty file": ("# nothing yet\n", ["line 1", "clusters", "at least one", "found nothing"]),
    "list at the top": ("\n- name: mac\n", ["line 2", "`clusters:`", "found a list"]),
    "scheduler as a list": (mac() + "\nscheduler: [1]", ["line 4", "scheduler", "a mapping", "found a list"]),
    "scheduler as an empty list": (mac() + "\nscheduler: []", ["line 4", "scheduler", "a mapping"]),
    "packages at a path": (
        mac() + "\nscheduler:\n  packages: /shared/packages",
        ["line 5", "scheduler.packages", "`database`", "file:///shared/packages"],
    ),
    "packages with a password": (
        mac() + f"\nscheduler:\n  packages: s3://me:{SECRET}@bucket/x",
        ["line 5", "scheduler.packages", "without user:password@", "environment"],
    ),
    "tab": ("clusters:\n\tmac: 1", ["line 2", "tab", "spaces"]),
    "open bracket": (mac("tags: [a"), ["line 4", "not valid YAML"]),
    "python object": (mac("tags: !!python/object/apply:os.system [ls]"), ["line 4", "tags", "refused"]),
    "alias without anchor": (
        mac(f"runtime_env: {{env_vars: {{A: *{SECRET}}}}}"),
        ["line 4", "anchor", "quotes"],
    ),
    "alias to itself": (mac("runtime_env: &a", "  config: *a"), ["line 4", "refers to itself"]),
    "anchor twice": (mac("tags: [&a x, &a y]"), ["line 4", "anchor", "quotes"]),
    "half a number": (mac("weight: 0x_"), ["line 4", "number cannot be read"]),
    "two documents": (mac() + "\n---\nclusters: {}", ["line 4", "second document"]),
    "control character": (mac("weight: \x00"), ["line 4", "character", "not allowed"]),
    "list as a key": ("clusters:\n  ? [a, b]\n  : {}", ["line 2", "plain word"]),
    "endless hexadecimal": (mac("weight: 0x" + "F" * 5000), ["line 4", "number cannot be read"]),
    "endless number": (mac("weight: " + "9" * 5000), ["line 4", "number cannot be read"]),
    "deep nesting": ("clusters:\n  " + "[" * 3000, ["line 2", f"{MAX_DEPTH} levels"]),
    "merge of a word": (mac("<<: word"), ["line 4", "not valid YAML", "merging"]),
}


@pytest.mark.parametrize(("text", "words"), MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_file_gets_one_clear_message(text: str, words: list[str]) -> None:
    problem = problem_of(text)
    line, *others = words
    assert problem.startswith(f"{line}: ")
    assert [word for word in others if word not in problem] == []


def test_every_problem_of_a_file_is_reported_at_once_in_the_order_of_lines() -> None:
    text = """
clusters:
  mac:
    head_address: [mac]
    prefer: 3
    wieght: 1
  centos:
    weight: -1
    runtime_env:
      pip: 3
      working_dir: ""
scheduler:
  probe_timeout_s: never
"""
    starts = [problem.split(": ")[:2] for problem in problems_of(text)]
    assert starts == [
        ["line 4", "clusters.mac.head_address"],
        ["line 5", "clusters.mac.prefer"],
        ["line 6", "clusters.mac.wieght"],
        ["line 7", "clusters.centos.head_address"],
        ["line 8", "clusters.centos.weight"],
        ["line 10", "clusters.centos.runtime_env.pip"],
        ["line 11", "clusters.centos.runtime_env.working_dir"],
        ["line 13", "scheduler.probe_timeout_s"],
    ]


def test_a_repeated_key_inside_an_alias_is_reported_once() -> None:
    text = mac("runtime_env: &env {env_vars: {A: x, A: y}}") + "\n  b: {head_address: b, runtime_env: *env}"
    assert "clusters.mac.runtime_env.env_vars.A" in problem_of(text)


def test_aliases_that_unfold_to_billions_are_refused_before_they_are_unfolded() -> None:
    levels = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 40)]
    assert "aliases unfold to more than" in problem_of("\n".join(levels))


@pytest.mark.parametrize(
    "lines",
    [
        (f"runtime_env: {{env_vars: {{TOKEN: {SECRET}, TOKEN: {SECRET}}}}}",),
        (f"runtime_env: {{env_vars: [{{TOKEN: {SECRET}}}]}}",),
        (f"runtime_env: {{env_vars: {{TOKEN: [{SECRET}]}}}}",),
        (f"runtime_env: {{envvars: {{TOKEN: {SECRET}}}}}",),
        (f"auth_token: {SECRET}",),
        (f"auth_token_env: {SECRET}",),
        (f"auth_token_env: Bearer {SECRET}",),
        (f"auth_token_env: [{SECRET}]",),
        (f"runtime_env: {{env_vars: {{TOKEN: '{SECRET}}}}}",),
        (f"runtime_env: {{env_vars: {{TOKEN: !{SECRET} x}}}}",),
        (f"runtime_env: {{env_vars: {{TOKEN: !{SECRET}!x}}}}",),
        (f"dashboard: http://[me:{SECRET}@mac",),
        (f"head_address: ray://me:{SECRET}@mac:10001",),
    ],
)
def test_a_secret_is_never_repeated_in_a_message(lines: tuple[str, ...]) -> None:
    assert problems_of(mac(*lines))


def test_text_that_is_not_utf8_is_reported_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "clusters.yaml"
    path.write_bytes("clusters:\n  # 集群\n".encode("gbk"))
    with pytest.raises(ConfigInvalid, match=r"line 2: .*UTF-8"):
        load_config(path)


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "clusters.yaml"
    path.write_bytes(b"#" * (MAX_BYTES + 1))
    with pytest.raises(ConfigInvalid, match="larger than"):
        load_config(path)


def test_a_directory_is_not_a_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="cannot be read"):
        load_config(tmp_path)


def test_a_missing_certificate_is_reported_with_its_full_path(tmp_path: Path) -> None:
    path = tmp_path / "clusters.yaml"
    path.write_text(mac("dashboard: https://mac", "tls_ca: certs/ca.pem"))
    with pytest.raises(
        ConfigInvalid, match=f"line 5: clusters.mac.tls_ca: .*{tmp_path / 'certs' / 'ca.pem'}"
    ):
        load_config(path)
