"""The ranks of both hosts measured their link, over the data plane, and nothing of them is left."""

import json

from testinfra.host import Host

OPERATIONS = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "latency"}


def test_no_process_and_no_port_is_left(host: Host, cluster_dir: str) -> None:
    # The first bracket keeps the search from finding itself.
    assert host.run(f"pgrep --full '[c]ollectives/rank.py.*{cluster_dir}'").stdout == ""
    for port in (20012, 20013):
        assert not [one for one in host.socket.get_listening_sockets() if one.endswith(f":{port}")]


def test_ranks_did_not_run_as_root(host: Host, cluster_dir: str) -> None:
    status = json.loads(host.file(f"{cluster_dir}/tasks/collective-ranks.json").content_string)
    assert (status["state"], status["user"]) == ("done", "vllm-molecule")


def test_the_program_belongs_to_root(host: Host, cluster_dir: str) -> None:
    for name in ("rank.py", "operations.py", "fabric.py", "channel.py"):
        program = host.file(f"{cluster_dir}/collectives/{name}")
        assert (program.user, program.mode) == ("root", 0o644)


def test_every_operation_was_measured_and_right(host: Host, cluster_dir: str) -> None:
    path = f"{cluster_dir}/tasks/collective-check.json"
    if host.backend.get_hostname() != "lab1":
        assert not host.file(path).exists
        return
    found = json.loads(host.file(path).content_string)["result"]
    assert set(found["across"]) == OPERATIONS
    assert all(one["wrong"] == 0 and one["busbw"] > 0 for one in found["across"].values())
    (pair,) = found["pairs"]
    assert (pair["first"], pair["second"], pair["wrong"]) == ("lab1", "lab2", 0)
    assert found["culprit"]["kind"] == "none"
