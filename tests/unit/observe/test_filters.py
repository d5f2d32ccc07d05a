"""When the stage does nothing at all, with which key figures are read, and where the door is."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def filters() -> ModuleType:
    path = Path(__file__).parents[3] / "filter_plugins/observe_filters.py"
    spec = importlib.util.spec_from_file_location("observe_filters", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_stage_ends_before_it_begins_only_where_nothing_is_asked_and_nothing_runs(
    filters: ModuleType,
) -> None:
    none = {"plan_processes": {"chat-serve": {}}}
    one = {"__vllm_processes": {"processes": {"observe-node": {}}}}
    assert filters.observe_unasked([none, none])
    assert not filters.observe_unasked([none, {**none, "observe_mode": "files"}])
    # Without quotes YAML reads `off` as false.
    for off in ("off", False):
        assert filters.observe_unasked([none, {**none, "observe_mode": off}])
    assert not filters.observe_unasked([none, one])
    # A stage that runs alone has not looked.
    assert not filters.observe_unasked([{}])


def test_the_key_is_another_one_than_the_engines_and_the_same_in_each_clone(
    filters: ModuleType,
) -> None:
    key = filters.observe_key("sk-engines\n")
    assert key == filters.observe_key("sk-engines")
    assert "sk-engines" not in key and len(key) == 64
    assert key != filters.observe_key("sk-other")
    # Made of nothing, it would be known to all who have this repository.
    assert filters.observe_key("\n") == ""


def test_the_door_is_where_it_is_recorded(filters: ModuleType) -> None:
    hosts = [{"name": "a", "address": "10.0.0.1"}, {"name": "b", "address": "10.0.0.2"}]
    served = filters.observe_served_at
    assert served({"a": {}, "b": {"door": {}}}, "door", hosts, 9443) == {"b": "10.0.0.2:9443"}
    assert served({"a": {}, "b": {}}, "door", hosts, 9443) == {}
    # One whose host this run leaves out is not scraped.
    assert served({"a": {"door": {}}}, "door", hosts[1:], 9443) == {}


def test_the_health_of_devices_is_read_where_its_process_writes_it(filters: ModuleType) -> None:
    """Also where a variable names a directory outside the cluster's."""
    processes = {"device-health": {"command": "python3 -m metrics '/srv/text files/devices.prom'"}}
    assert filters.observe_health_file(processes) == "/srv/text files/devices.prom"
    assert filters.observe_health_file({"chat-serve": {}}) == ""
