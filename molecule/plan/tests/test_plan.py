"""The plan lies on the head, and nowhere else, and fits the hosts it was made for."""

from collections.abc import Callable
from typing import Any

from testinfra.host import Host


def test_only_the_head_keeps_the_plan(
    host: Host, name: str, cluster_dir: str, owned: Callable[[str, str, int], None]
) -> None:
    assert host.file(f"{cluster_dir}/plan.json").exists is (name == "lab1")
    if name == "lab1":
        owned(f"{cluster_dir}/plan.json", "root", 0o644)


def test_the_engine_spans_both_hosts_once(plan: dict[str, Any]) -> None:
    assert plan["hosts"] == ["lab1", "lab2"]
    # 9 heads and 3 key-value heads cannot be split in two; 30 layers can.
    assert plan["layout"] == {"tensor": 1, "pipeline": 2}
    assert [(rank["rank"], rank["host"], rank["device"]) for rank in plan["ranks"]] == [
        (0, "lab1", 0),
        (1, "lab2", 0),
    ]


def test_no_port_is_planned_twice_or_handed_out_by_the_kernel(
    host: Host, plan: dict[str, Any]
) -> None:
    ports = dict(plan["ports"])
    workers = range(ports.pop("worker_first"), ports.pop("worker_last") + 1)
    every = [*ports.values(), *workers]
    assert len(every) == len(set(every))
    lowest, _ = host.file("/proc/sys/net/ipv4/ip_local_port_range").content_string.split()
    assert max(every) < int(lowest)
    listening = {socket.rpartition(":")[2] for socket in host.socket.get_listening_sockets()}
    assert listening.isdisjoint(map(str, every)), "planning starts nothing"
