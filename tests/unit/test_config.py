"""A right clusters.yaml gives exactly the clusters that it describes."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ray_multicluster_scheduler.config import ClusterEntry, Config, Settings, load_config, parse_config
from ray_multicluster_scheduler.errors import InvalidRequest
from ray_multicluster_scheduler.model.cluster import ClusterSpec
from ray_multicluster_scheduler.model.resources import GIB

PATH = Path("/etc/raymc/clusters.yaml")

CENTOS_AND_MAC = """
clusters:
  centos:
    head_address: 192.168.0.145:10001
    runtime_env:
      conda: ts
      env_vars:
        home_dir: /home/zorro/
        PYTHONPATH: |
          /home/zorro/project/pycharm/Fund:
          /home/zorro/project/pycharm/tools:
          /home/zorro/project/pycharm/rlops:
          /home/zorro/project/pycharm/mlops:
          /home/zorro/project/pycharm/ray_multicluster_scheduler:
          ${PYTHONPATH}
  mac:
    head_address: 192.168.0.100:10001
    runtime_env:
      conda: k8s
      env_vars:
        home_dir: /Users/zorro/
        PYTHONPATH: |
          /Users/zorro/project/pycharm/Fund:
          /Users/zorro/project/pycharm/tools:
          /Users/zorro/project/pycharm/rlops:
          /Users/zorro/project/pycharm/mlops:
          /Users/zorro/project/pycharm/ray_multicluster_scheduler:
          ${PYTHONPATH}
"""

CPU_AND_GPU = """
clusters:
  cpu_cluster:
    head_address: "123.456.789.0:10001"
    runtime_env:
      pip:
        - "numpy"
        - "pandas"
      env_vars:
        - "PYTHONPATH=/opt/code"
    prefer: true
    weight: 1.0
    tags: ["cpu", "stable"]

  gpu_cluster:
    head_address: "123.456.789.1:10002"
    runtime_env:
      pip:
        - "torch"
        - "torchvision"
      conda:
        dependencies: ["cudatoolkit=11.7"]
    prefer: false
    weight: 0.8
    tags: ["gpu", "experimental"]
"""


def parsed(text: str) -> Config:
    return parse_config(text, PATH)


def only(**fields: Any) -> ClusterSpec:
    """The one cluster of a file with these fields."""
    (spec,) = parsed(yaml.safe_dump({"clusters": {"mac": {"head_address": "mac", **fields}}})).clusters
    return spec


def zorro(name: str, *, ip: str, conda: str, home: str) -> ClusterSpec:
    """What the entry of `centos` or `mac` must become."""
    projects = ("Fund", "tools", "rlops", "mlops", "ray_multicluster_scheduler")
    python_path = ":".join([*(f"{home}project/pycharm/{project}" for project in projects), "${PYTHONPATH}"])
    return ClusterSpec(
        name=name,
        head_address=f"{ip}:10001",
        dashboard=f"http://{ip}:8265",
        runtime_env={"conda": conda, "env_vars": {"home_dir": home, "PYTHONPATH": python_path}},
    )


def test_centos_and_mac_load_each_with_its_own_environment() -> None:
    centos, mac = parsed(CENTOS_AND_MAC).clusters
    assert centos == zorro("centos", ip="192.168.0.145", conda="ts", home="/home/zorro/")
    assert mac == zorro("mac", ip="192.168.0.100", conda="k8s", home="/Users/zorro/")
    assert (centos.home_dir, mac.home_dir) == ("/home/zorro/", "/Users/zorro/")


def test_clusters_with_impossible_addresses_load_because_only_the_doctor_can_tell() -> None:
    cpu, gpu = parsed(CPU_AND_GPU).clusters
    assert cpu == ClusterSpec(
        name="cpu_cluster",
        head_address="123.456.789.0:10001",
        dashboard="http://123.456.789.0:8265",
        runtime_env={"pip": ["numpy", "pandas"], "env_vars": {"PYTHONPATH": "/opt/code"}},
        prefer=True,
        weight=1.0,
        tags=("cpu", "stable"),
    )
    assert (gpu.name, gpu.head_address, gpu.dashboard) == (
        "gpu_cluster",
        "123.456.789.1:10002",
        "http://123.456.789.1:8265",
    )
    assert (gpu.prefer, gpu.weight, gpu.tags) == (False, 0.8, ("gpu", "experimental"))
    assert sorted(gpu.runtime_env) == ["conda", "pip"]


def test_every_field_reaches_the_cluster() -> None:
    spec = only(
        head_address="ray://mac:10005",
        dashboard="HTTPS://Proxy.example/ray/mac/",
        max_running_jobs=7,
        max_resources={"CPU": 64, "memory": 256},
        auth_token_env="RAY_TOKEN_MAC",
        tls_ca="certs/ca.pem",
        tags=["gpu", "gpu"],
        drained=True,
    )
    assert spec == ClusterSpec(
        name="mac",
        head_address="mac:10005",
        dashboard="https://proxy.example/ray/mac",
        max_running_jobs=7,
        max_resources={"CPU": 64.0, "memory": 256.0 * GIB},
        auth_token_env="RAY_TOKEN_MAC",
        tls_ca="/etc/raymc/certs/ca.pem",
        tags=("gpu",),
        drained=True,
    )


@pytest.mark.parametrize(
    ("written", "address", "dashboard"),
    [
        ("mac", "mac:10001", "http://mac:8265"),
        ("ray://mac", "mac:10001", "http://mac:8265"),
        ("ray://mac:10003/", "mac:10003", "http://mac:8265"),
        ("my_host-1.example:1", "my_host-1.example:1", "http://my_host-1.example:8265"),
        ("[::1]:10001", "[::1]:10001", "http://[::1]:8265"),
        ("[fe80::2]", "[fe80::2]:10001", "http://[fe80::2]:8265"),
    ],
)
def test_an_address_may_be_written_in_several_ways(written: str, address: str, dashboard: str) -> None:
    spec = only(head_address=written)
    assert (spec.head_address, spec.dashboard) == (address, dashboard)


@pytest.mark.parametrize("url", ["http://[::1]", "http://[::1]:8265", "https://mac", "http://mac:80/a/b"])
def test_a_dashboard_keeps_its_address(url: str) -> None:
    assert only(dashboard=url).dashboard == url


def test_text_stays_as_it_was_written_even_where_yaml_sees_a_number_or_a_date() -> None:
    text = """
clusters:
  145:
    head_address: a
    tags: [2024-01-01, 1.10, no]
    runtime_env: {env_vars: {VERSION: 1.10, FLAG: yes, 1: 012}}
"""
    (spec,) = parsed(text).clusters
    assert spec.name == "145"
    assert spec.tags == ("2024-01-01", "1.10", "no")
    assert spec.runtime_env == {"env_vars": {"VERSION": "1.10", "FLAG": "yes", "1": "012"}}


def test_clusters_can_share_an_environment_through_an_anchor() -> None:
    text = """
clusters:
  a:
    head_address: a
    runtime_env: &shared
      env_vars: {LANG: C}
      conda: ts
  b:
    head_address: b
    runtime_env: {<<: *shared, conda: k8s}
"""
    a, b = parsed(text).clusters
    assert a.runtime_env == {"env_vars": {"LANG": "C"}, "conda": "ts"}
    assert b.runtime_env == {"env_vars": {"LANG": "C"}, "conda": "k8s"}


def test_an_empty_value_is_the_same_as_a_key_left_out() -> None:
    (spec,) = parsed(
        "clusters:\n  mac:\n    head_address: mac\n    tags:\n    runtime_env:\nscheduler:\n"
    ).clusters
    assert spec == only()


def test_settings_have_defaults_and_can_be_set() -> None:
    text = "clusters: {mac: {head_address: mac}}"
    assert parsed(text).settings == Settings()
    assert parsed(text + "\nscheduler: {probe_interval_s: 1}").settings == Settings(probe_interval_s=1)


def test_a_cluster_is_found_by_name_and_a_wrong_name_gets_the_nearest() -> None:
    config = parsed(CENTOS_AND_MAC)
    assert config.cluster("mac") is config.clusters[1]
    with pytest.raises(InvalidRequest, match=r"'cent0s'.*did you mean 'centos'"):
        config.cluster("cent0s")


def test_a_file_with_a_byte_order_mark_loads_with_its_certificate_beside_it(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("certificate")
    path = tmp_path / "clusters.yaml"
    text = "# 集群\nclusters: {mac: {head_address: a, dashboard: 'https://a', tls_ca: ca.pem}}"
    path.write_text("\ufeff" + text, encoding="utf-8")
    (spec,) = load_config(path).clusters
    assert spec.tls_ca == str(tmp_path / "ca.pem")


NAMES = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}", fullmatch=True)
ENTRIES = st.fixed_dictionaries(
    {},
    optional={
        "prefer": st.booleans(),
        "drained": st.booleans(),
        "weight": st.floats(min_value=0.01, max_value=100) | st.integers(1, 100),
        "tags": st.lists(NAMES, max_size=3),
        "max_running_jobs": st.integers(1, 1000),
        "max_resources": st.dictionaries(st.sampled_from(["CPU", "GPU", "memory"]), st.integers(0, 2**40)),
        "auth_token_env": st.sampled_from(["RAY_TOKEN", "token_of_mac"]),
    },
)


@given(st.dictionaries(NAMES, ENTRIES, min_size=1, max_size=4))
def test_the_list_form_and_the_mapping_form_say_the_same(entries: dict[str, dict[str, Any]]) -> None:
    placed = {name: {**entry, "head_address": f"host{n}"} for n, (name, entry) in enumerate(entries.items())}
    mapping = yaml.safe_dump({"clusters": placed}, sort_keys=False)
    listed = yaml.safe_dump({"clusters": [{**entry, "name": name} for name, entry in placed.items()]})
    assert parsed(mapping) == parsed(listed)


@given(NAMES, ENTRIES)
def test_the_order_of_clusters_changes_nothing_in_them(name: str, entry: dict[str, Any]) -> None:
    other = {"head_address": "elsewhere", "tags": ["other"]}
    first = {name: {**entry, "head_address": "here"}}
    alone = parsed(yaml.safe_dump({"clusters": first})).clusters[0]
    after = parsed(yaml.safe_dump({"clusters": {f"{name[:60]}-o": other, **first}}, sort_keys=False))
    assert after.clusters[1] == alone


def test_every_field_of_the_schema_has_a_description_and_every_setting_a_default() -> None:
    described = [*ClusterEntry.model_fields.values(), *Settings.model_fields.values()]
    assert all(field.description and field.description.endswith(".") for field in described)
    assert not any(field.is_required() for field in Settings.model_fields.values())


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("database", "database"),
        ("s3://bucket/packages/", "s3://bucket/packages"),
        ("file:///shared/packages", "file:///shared/packages"),
        ("sftp://me@host/packages", "sftp://me@host/packages"),
    ],
)
def test_packages_are_shared_in_the_database_or_at_a_url(written: str, read: str) -> None:
    text = yaml.safe_dump({"clusters": {"mac": {"head_address": "mac"}}, "scheduler": {"packages": written}})
    assert parsed(text).settings.packages == read
