"""The cluster files: the cloud's nodes are set up as the tested ones, and nothing is open to the world.

Fields only: no cloud and no Kubernetes is asked. tests/engine/test_cluster.py brings up a real cluster.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from framekiln.api.request import OUTPUT

ROOT = Path(__file__).resolve().parents[2]
LOCAL = "manifests/cluster/local.yaml"
AWS = "cluster.yaml"


def _settings(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / name).read_text())
    return loaded


@pytest.mark.parametrize("name", [AWS, LOCAL])
def test_ray_accepts_the_file(name: str) -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    validate_config(prepare_config(_settings(name)))


def test_the_cloud_nodes_are_set_up_and_started_as_the_tested_ones() -> None:
    cloud, own = _settings(AWS), _settings(LOCAL)
    assert cloud["setup_commands"] == own["setup_commands"]
    assert cloud["file_mounts"] == own["file_mounts"]
    assert cloud["worker_start_ray_commands"] == own["worker_start_ray_commands"]
    assert cloud["head_start_ray_commands"][-1] == own["head_start_ray_commands"][-1].replace(
        "RAY_enable_autoscaler_v2=0 ", ""
    )
    assert set(own["head_setup_commands"]) <= set(cloud["head_setup_commands"])


def test_a_run_without_options_writes_where_all_cloud_nodes_can() -> None:
    """`ray submit cluster.yaml pipeline/run.py --profile high-throughput`, as it stands."""
    cloud = _settings(AWS)
    assert any(f"{OUTPUT}=s3://" in line for line in cloud["head_setup_commands"])
    assert cloud["available_node_types"]["gpu"]["min_workers"] >= 1


def test_no_cloud_node_gets_the_security_group_that_ray_opens_to_the_world() -> None:
    for node in _settings(AWS)["available_node_types"].values():
        assert node["node_config"]["SecurityGroupIds"]


@pytest.mark.parametrize("name", [AWS, LOCAL, "manifests/k8s/raycluster.yaml", "manifests/k8s/rayjob.yaml"])
def test_no_file_listens_to_the_world_or_turns_the_token_off(name: str) -> None:
    text = re.sub(r"#.*", "", (ROOT / name).read_text())
    assert "dashboard-host=0.0.0.0" not in text
    assert "0.0.0.0/0" not in text
    assert "disabled" not in text
    assert "token" in text


@pytest.mark.parametrize(("name", "kind"), [("raycluster", "RayCluster"), ("rayjob", "RayJob")])
def test_kubernetes_manifests(name: str, kind: str) -> None:
    """The fields only: no KubeRay ran here."""
    import ray

    document = _settings(f"manifests/k8s/{name}.yaml")
    assert (document["apiVersion"], document["kind"]) == ("ray.io/v1", kind)
    spec = document["spec"] if kind == "RayCluster" else document["spec"]["rayClusterSpec"]
    assert spec["rayVersion"] == ray.__version__
    assert spec["authOptions"] == {"mode": "token"}
    assert spec["enableInTreeAutoscaling"] is True
    assert spec["headGroupSpec"].get("serviceType", "ClusterIP") == "ClusterIP"
    (workers,) = spec["workerGroupSpecs"]
    assert workers["minReplicas"] <= workers["replicas"] <= workers["maxReplicas"]
    (container,) = workers["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 1
    mounts = [
        {mount["mountPath"]: mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
        for pod in (spec["headGroupSpec"]["template"]["spec"], workers["template"]["spec"])
    ]
    assert mounts[0]["/data"] == mounts[1]["/data"]  # journals and tables are files that every node must see


def test_both_kubernetes_manifests_ask_for_the_same_cluster() -> None:
    alone, within_job = _settings("manifests/k8s/raycluster.yaml"), _settings("manifests/k8s/rayjob.yaml")
    assert alone["spec"] == within_job["spec"]["rayClusterSpec"]
