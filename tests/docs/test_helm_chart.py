"""The Helm chart in `deploy/`: its schema, its values and what it makes of them."""

import functools
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml
from tests.docs.pages import ROOT
from tests.docs.test_commands import parse_raymc
from tests.integration.raymc import environment, raymc, write_config
from tests.oracle import PATIENCE_S

from ray_multicluster_scheduler.config import load_config
from ray_multicluster_scheduler.version import VERSION

CHART = ROOT / "deploy" / "helm" / "raymc"
EXAMPLES = sorted((CHART / "examples").glob("*.yaml"))
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
HELM = shutil.which("helm") or shutil.which("helm", path=str(Path(sys.executable).parent))

each_example = pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
needs_helm = pytest.mark.skipif(
    HELM is None, reason="NOT TESTED: helm is not installed, so nobody has rendered the chart here"
)


def merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Lay values over others, as Helm does."""
    both = {**one, **other}
    for key in one.keys() & other.keys():
        if isinstance(one[key], dict) and isinstance(other[key], dict):
            both[key] = merged(one[key], other[key])
    return both


def values_of(example: Path) -> dict[str, Any]:
    return merged(VALUES, yaml.safe_load(example.read_text()))


def problems(values: Mapping[str, Any]) -> list[str]:
    return [error.message for error in jsonschema.Draft7Validator(SCHEMA).iter_errors(values)]


def test_the_schema_is_one_and_takes_the_values_of_the_chart() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    assert problems(VALUES) == []


@each_example
def test_the_schema_takes_the_examples(example: Path) -> None:
    assert problems(values_of(example)) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"replicas": 2},
        {"replicaCount": 0},
        {"replicaCount": "2"},
        {"store": {"password": "swordfish"}},
        {"store": {"url": "mysql://raymc@db/raymc"}},
        {"persistence": {"accessMode": "ReadWriteMany"}},
        {"persistence": {"size": "much"}},
        {"clusterTokens": [{"env": "RAY_TOKEN", "value": "swordfish"}]},
        {"config": {"cluster": {}}},
    ],
    ids=str,
)
def test_the_schema_refuses_what_the_chart_would_not_understand(wrong: dict[str, Any]) -> None:
    assert problems(merged(VALUES, wrong))


def test_the_schema_knows_every_value_and_the_chart_has_every_value_of_the_schema() -> None:
    def paths(node: Mapping[str, Any], above: str = "") -> Iterator[str]:
        for name, inner in node.get("properties", {}).items():
            yield f"{above}{name}"
            yield from paths(inner, f"{above}{name}.")

    def given(values: Mapping[str, Any], above: str = "") -> Iterator[str]:
        for name, inner in values.items():
            yield f"{above}{name}"
            if isinstance(inner, dict):
                yield from given(inner, f"{above}{name}.")

    inside = ("config.", "resources.")  # not ours to describe
    known = {path for path in paths(SCHEMA) if not path.startswith(inside)} - {"global"}
    assert known == {path for path in given(VALUES) if not path.startswith(inside)}
    named = {
        name
        for path in (CHART / "templates").iterdir()
        for name in re.findall(r"\.Values\.([A-Za-z.]+)", path.read_text())
    }
    assert named - {"config.clusters"} <= known


def test_the_chart_has_the_version_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert [chart["version"], chart["appVersion"]] == [VERSION] * 2


@each_example
def test_the_configuration_of_an_example_is_one_that_the_server_takes(example: Path, tmp_path: Path) -> None:
    values = values_of(example)
    (tmp_path / "clusters.yaml").write_text(yaml.safe_dump(values["config"]))
    config = load_config(tmp_path / "clusters.yaml")
    tokens = {spec.auth_token_env for spec in config.clusters} - {None}
    assert tokens == {each["env"] for each in values["clusterTokens"]}


async def test_the_first_container_waits_for_a_token_and_goes_on_with_it(tmp_path: Path) -> None:
    """`grep '"id"'` in the list of tokens tells whether there is one."""
    assert (
        "until raymc token list --json | grep -q '\"id\"'"
        in (CHART / "templates/deployment.yaml").read_text()
    )
    config = write_config(tmp_path, [])
    config.write_text("clusters: {a: {head_address: 127.0.0.1:9}}")
    environ = environment(RAY_MULTICLUSTER_HOME=str(tmp_path), RAY_MULTICLUSTER_CONFIG=str(config))
    assert '"id"' not in (await raymc("token", "list", "--json", environ=environ)).out
    await raymc("token", "create", "--user", "ann", "--role", "admin", environ=environ)
    assert '"id"' in (await raymc("token", "list", "--json", environ=environ)).out


# -- with helm itself


def helm(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(HELM), *words], capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )


@functools.cache
def rendered(example: Path, *settings: str) -> dict[str, dict[str, Any]]:
    """Return what the chart makes, by kind."""
    more = [f"--set={setting}" for setting in settings]
    done = helm("template", "team", str(CHART), "--namespace", "ml", "--values", str(example), *more)
    assert done.returncode == 0, done.stderr
    return {each["kind"]: each for each in yaml.safe_load_all(done.stdout) if each}


def refused(*settings: str) -> str:
    more = [f"--set={setting}" for setting in settings]
    done = helm("template", "team", str(CHART), "--values", str(CHART / "examples/single-values.yaml"), *more)
    assert done.returncode != 0
    return done.stderr


@needs_helm
@each_example
def test_helm_finds_nothing_wrong(example: Path) -> None:
    done = helm("lint", "--strict", str(CHART), "--values", str(example))
    assert done.returncode == 0, done.stdout


@needs_helm
@each_example
def test_the_servers_are_started_with_options_that_exist(example: Path) -> None:
    for settings in ((), ("tls.secretName=cert", "allowedHosts={ray.example.org}")):
        pod = rendered(example, *settings)["Deployment"]["spec"]["template"]["spec"]
        parse_raymc(shlex.join(["raymc", *pod["containers"][0]["args"]]))


@needs_helm
@each_example
def test_no_container_may_do_more_than_it_has_to(example: Path) -> None:
    pod = rendered(example)["Deployment"]["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    for container in (*pod["initContainers"], *pod["containers"]):
        security = container["securityContext"]
        assert security["readOnlyRootFilesystem"] is True
        assert security["allowPrivilegeEscalation"] is False
        assert security["capabilities"] == {"drop": ["ALL"]}


@needs_helm
@each_example
def test_clusters_yaml_is_a_plain_file_because_its_path_names_the_queue(example: Path) -> None:
    pod = rendered(example)["Deployment"]["spec"]["template"]["spec"]
    for container in (*pod["initContainers"], *pod["containers"]):
        (mount,) = [each for each in container["volumeMounts"] if each["name"] == "config"]
        assert mount["subPath"] == "clusters.yaml"


@needs_helm
@each_example
def test_clusters_yaml_is_what_the_values_say_and_a_change_makes_new_pods(example: Path) -> None:
    made = rendered(example)
    assert yaml.safe_load(made["ConfigMap"]["data"]["clusters.yaml"]) == values_of(example)["config"]
    other = rendered(example, "config.scheduler.probe_interval_s=7")
    one, two = (
        each["Deployment"]["spec"]["template"]["metadata"]["annotations"]["checksum/config"]
        for each in (made, other)
    )
    assert one != two


@needs_helm
def test_one_server_is_replaced_and_several_take_turns() -> None:
    single, several = (rendered(CHART / "examples" / f"{name}-values.yaml") for name in ("single", "kuberay"))
    assert single["Deployment"]["spec"]["strategy"]["type"] == "Recreate"
    assert "PodDisruptionBudget" not in single
    assert several["Deployment"]["spec"]["strategy"]["type"] == "RollingUpdate"
    assert several["PodDisruptionBudget"]["spec"]["maxUnavailable"] == 1


@needs_helm
def test_only_sqlite_has_a_volume() -> None:
    single, several = (CHART / "examples" / f"{name}-values.yaml" for name in ("single", "kuberay"))
    store = "store.url=postgresql://raymc@db/raymc"
    for made, kept in (
        (rendered(single), True),
        (rendered(single, "persistence.existingClaim=mine"), True),
        (rendered(single, "persistence.enabled=false"), False),
        (rendered(single, store), False),
        (rendered(several), False),
    ):
        pod = made["Deployment"]["spec"]["template"]["spec"]
        (state,) = [volume for volume in pod["volumes"] if volume["name"] == "state"]
        assert ("persistentVolumeClaim" in state, "emptyDir" in state) == (kept, not kept)
    assert rendered(single)["PersistentVolumeClaim"]["spec"]["accessModes"] == ["ReadWriteOnce"]
    assert "PersistentVolumeClaim" not in {**rendered(several), **rendered(single, store)}
    assert rendered(single, store)["Deployment"]["spec"]["strategy"]["type"] == "RollingUpdate"


@needs_helm
def test_secrets_are_named_and_never_written() -> None:
    made = rendered(CHART / "examples" / "kuberay-values.yaml")
    assert "Secret" not in made
    pod = made["Deployment"]["spec"]["template"]["spec"]
    env = {each["name"]: each for each in pod["containers"][0]["env"]}
    assert env["RAY_TOKEN_GPU"]["valueFrom"]["secretKeyRef"]["name"] == "gpu-ray-token"
    assert env["RAY_MULTICLUSTER_STORE"]["value"] == "postgresql://raymc@postgres/raymc"
    file = Path(env["RAY_MULTICLUSTER_STORE_PASSWORD_FILE"]["value"])
    (mount,) = [
        each for each in pod["containers"][0]["volumeMounts"] if each["mountPath"] == str(file.parent)
    ]
    (volume,) = [each for each in pod["volumes"] if each["name"] == mount["name"]]
    assert volume["secret"]["items"] == [{"key": "password", "path": file.name}]
    first = {each["name"] for each in pod["initContainers"][0]["env"]}
    assert first == {"RAY_MULTICLUSTER_STORE", "RAY_MULTICLUSTER_STORE_PASSWORD_FILE"}


@needs_helm
def test_what_is_optional_is_there_when_it_is_asked_for() -> None:
    single = CHART / "examples" / "single-values.yaml"
    assert not {"ServiceMonitor", "NetworkPolicy"} & rendered(single).keys()
    asked = ("serviceMonitor.enabled=true", "serviceMonitor.tokenSecret.name=t", "networkPolicy.enabled=true")
    made = rendered(single, *asked)
    (endpoint,) = made["ServiceMonitor"]["spec"]["endpoints"]
    assert endpoint["authorization"]["credentials"] == {"name": "t", "key": "token"}
    assert made["NetworkPolicy"]["spec"]["policyTypes"] == ["Ingress"]
    # The alerts ask for this job, and the label says so.
    assert made["Service"]["metadata"]["labels"][made["ServiceMonitor"]["spec"]["jobLabel"]] == "raymc"


@needs_helm
def test_what_cannot_work_is_refused_with_what_to_do() -> None:
    assert "set store.url" in refused("replicaCount=2")
    assert "store.passwordSecret" in refused("store.url=postgresql://raymc:swordfish@db/raymc")
    empty = helm("template", "team", str(CHART), "--set=replicaCount=1")
    assert "name at least one" in empty.stderr
    assert "tokenSecret" in refused("serviceMonitor.enabled=true")
