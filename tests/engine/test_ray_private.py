"""Ray's private parts that `engine/ray/private.py` uses are there, with the forms that it relies on."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
import ray
import ray._private.state
from ray._private import node, parameter, ray_constants, services, utils, worker
from ray._private.internal_api import node_stats
from ray.core.generated import common_pb2, gcs_pb2
from ray.job_config import JobConfig

import framekiln

PACKAGE = Path(framekiln.__file__).parent

REPLACED = (  # functions that a start replaces, and the module of Ray that has to find them there
    (node, "ray._private.services.start_raylet("),
    (node, "ray._private.services.get_node("),
    (services, "ConsolePopen("),
    (worker, "RayParams("),
    (worker, "print_to_stdstream"),
    (utils, "def set_sigterm_handler"),
    (utils, "def get_entrypoint_name"),
)


@pytest.mark.parametrize(("module", "text"), REPLACED, ids=lambda item: getattr(item, "__name__", item))
def test_ray_still_calls_what_a_start_replaces(module, text):
    assert text in inspect.getsource(module)


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (parameter.RayParams, {"metrics_agent_port", "metrics_export_port", "runtime_env_agent_port"}),
        (parameter.RayParams, {"no_monitor", "include_log_monitor"}),
        (services.start_raylet, {"session_dir", "node_id"}),
        (services.get_node, {"gcs_address", "node_id"}),
        (JobConfig, {"_client_job", "_py_driver_sys_path"}),
        (node_stats, {"node_manager_address", "node_manager_port", "include_memory_info"}),
        (ray._private.state.actors, {"job_id"}),
        (node.Node.kill_all_processes, {"check_alive", "allow_graceful"}),
        (ray._raylet.persist_port, set()),
    ],
    ids=lambda item: getattr(item, "__qualname__", ""),
)
def test_functions_have_these_parameters(function, names):
    assert callable(function)
    if names:
        assert names <= set(inspect.signature(function).parameters)


def test_ray_init_takes_a_folder():
    assert "_temp_dir" in inspect.getsource(worker.init)


def test_values_have_these_names():
    assert ray_constants.ENABLE_RAY_CLUSTER in (True, False)
    assert (ray_constants.PROCESS_TYPE_RAYLET, ray_constants.PROCESS_TYPE_GCS_SERVER) == ("raylet", "gcs_server")
    assert ray._raylet.DASHBOARD_AGENT_LISTEN_PORT_NAME and hasattr(ray._raylet.InnerGcsClient, "get_all_node_info")
    assert worker._global_node is None or worker._global_node.get_logs_dir_path()
    assert hasattr(ray._private.state.state, "_connect_and_get_accessor")
    assert {"exit_type", "is_alive", "job_id", "worker_address", "worker_type"} <= set(
        gcs_pb2.WorkerTableData.DESCRIPTOR.fields_by_name
    )
    assert common_pb2.WORKER != common_pb2.DRIVER and common_pb2.SYSTEM_ERROR != common_pb2.NODE_OUT_OF_MEMORY


def test_they_lie_in_one_file():
    private = re.compile(r"ray\._private|ray\._raylet|ray\.core\.generated|\"RAY_(?!ADDRESS|TMPDIR|AUTH_MODE)")
    users = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py") if private.search(path.read_text())}
    assert users == {"engine/ray/private.py"}
