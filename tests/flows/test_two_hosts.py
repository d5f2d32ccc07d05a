"""The shipped inventory of the lab on two real hosts: what keeps it down, and then its answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from vllm_ansible.lab.cache import MOUNT

from .clone import Ran
from .drained import DRAIN
from .greedy import ASK
from .hub_model import DIRECTORY, MODEL, digests, hub_on
from .two_hosts import CLUSTER_DIR, SCAN, TwoHosts

pytestmark = [pytest.mark.engine, pytest.mark.lab]
DROP_IN = "/etc/systemd/system/vllm-demo-chat-ray.service.d"
# The wait for a host that never joins, shortened: what it says is looked at, not its patience.
IMPATIENT = ("-e", "ray_join_silence_seconds=45")


def test_two_networks_are_not_guessed_between(two_hosts: TwoHosts) -> None:
    failure = two_hosts.run("-e", "data_plane_network=").failure
    networks = sorted(one.subnet for one in two_hosts.lab.record.networks)
    assert failure["stage"] == "prepare"
    assert failure["msg"].startswith("lab1, lab2 share 2 networks")
    assert all(network in failure["found"] for network in networks)
    assert failure["fix"].startswith("set data_plane_network: ")


def test_a_host_that_cannot_be_reached_is_named(two_hosts: TwoHosts) -> None:
    content = yaml.safe_load((two_hosts.inventory / "hosts.yml").read_text())
    hosts = content["all"]["children"]["gpu"]["hosts"]
    nobody = hosts["lab2"]["ansible_host"].rpartition(".")[0] + ".250"
    hosts["lab3"] = {"ansible_host": nobody}
    shipped = yaml.safe_load((two_hosts.inventory / "group_vars" / "all.yml").read_text())
    directory = two_hosts.inventory.with_name("ghost")
    (directory / "group_vars").mkdir(parents=True)
    (directory / "hosts.yml").write_text(yaml.safe_dump(content))
    (directory / "group_vars" / "all.yml").write_text(yaml.safe_dump(shipped))
    failure = two_hosts.clone.run(directory).failure
    assert failure["host"] == "lab3"
    assert nobody in failure["found"], failure
    assert failure["fix"]


def test_hosts_that_cannot_reach_each_other_are_named(two_hosts: TwoHosts) -> None:
    with_cut = two_hosts.lab.link("lab1", "lab2")
    with_cut.cut()
    try:
        before = two_hosts.run().failure
        after = two_hosts.run("--tags", "weights,plan,cluster", *IMPATIENT).failure
    finally:
        with_cut.restore()
    assert before["stage"] == "verify"
    for host in ("lab1", "lab2"):
        assert f"{host} ({two_hosts.lab.address(host)})" in before["found"], before
    # A cut that comes later is told by what was to be started.
    assert after["stage"] == "cluster"
    assert "lab2" in after["where"]
    # Not that somebody is missing, but why.
    address = two_hosts.lab.address("lab1")
    assert f"Failed to connect to GCS at address {address}" in after["found"]
    assert after["cause"].startswith("This host cannot reach the Ray head's GCS")


def test_a_worker_with_another_token_is_named(two_hosts: TwoHosts) -> None:
    lab = two_hosts.lab
    drop_in = f"[Service]\nEnvironment=RAY_AUTH_TOKEN_PATH={DROP_IN}/other\n"
    lab.run("lab2", ["mkdir", "-p", DROP_IN])
    for name, text in (("other", "f" * 64), ("token.conf", drop_in)):
        lab.run("lab2", ["python3", "-c", _WRITE, f"{DROP_IN}/{name}", text])
    lab.run("lab2", ["systemctl", "daemon-reload"])
    # As an operator would after a change by hand: everything of the engine starts again.
    assert two_hosts.run(playbook="playbooks/stop.yml").status == 0
    try:
        failure = two_hosts.run("--tags", "cluster", *IMPATIENT).failure
    finally:
        lab.run("lab2", ["rm", "-r", DROP_IN])
        lab.run("lab2", ["systemctl", "daemon-reload"])
    assert failure["stage"] == "cluster"
    assert "lab2" in failure["where"]
    assert "Authentication token is missing or incorrect" in failure["found"]
    assert failure["cause"] == "This host holds another Ray token than the head"


_WRITE = "import sys; open(sys.argv[1], 'w').write(sys.argv[2])"


def test_two_engines_over_both_hosts_answer_at_the_same_time(two_hosts_served: TwoHosts) -> None:
    plan = two_hosts_served.plan
    layouts = {name: engine["layout"] for name, engine in plan.items()}
    assert layouts["chat"] == {"tensor": 1, "pipeline": 2}
    assert layouts["experts"] == {"tensor": 2, "pipeline": 1}
    for engine in plan.values():
        assert [rank["host"] for rank in engine["ranks"]] == ["lab1", "lab2"]


@pytest.mark.parametrize("name", ["chat", "experts"])
def test_the_greedy_text_over_two_hosts_is_that_of_one_process(
    two_hosts_served: TwoHosts, one_process_texts: dict[str, Any], name: str
) -> None:
    engine = two_hosts_served.plan[name]
    url = f"http://{two_hosts_served.lab.address('lab1')}:{engine['ports']['api']}"
    key = f"{CLUSTER_DIR}/secrets/api_key"
    found = two_hosts_served.python("lab1", ASK, url, key, engine["served_name"])
    assert len(found["tokens"]) == 32
    assert found == one_process_texts[name]


def test_the_second_run_over_two_hosts_changes_nothing(two_hosts_served: TwoHosts) -> None:
    before = two_hosts_served.processes()
    ran = two_hosts_served.run()
    assert ran.status == 0, ran.output
    assert ran.changed == []
    after = two_hosts_served.processes()
    # Nothing was started; what has ended since are processes of Ray's own that had nothing to do.
    assert {host: [one for one in after[host] if one not in before[host]] for host in after} == {
        host: [] for host in before
    }
    assert all(after.values())


def test_a_stranger_on_the_network_finds_planned_ports_only_and_no_way_in(
    two_hosts_served: TwoHosts,
) -> None:
    lab = two_hosts_served.lab
    addresses = [lab.address("lab1", one.role) for one in lab.record.networks]
    found = [tuple(one) for one in two_hosts_served.python("lab2", SCAN, *addresses)]
    planned = {22}
    apis = set()
    metrics = set()
    for engine in two_hosts_served.plan.values():
        ports = engine["ports"]
        planned |= {*ports.values(), *range(ports["worker_first"], ports["worker_last"] + 1)}
        apis.add((lab.address("lab1"), ports["api"]))
        metrics |= {ports[one] for one in ("metrics", "autoscaler_metrics", "dashboard_metrics")}
    first_of_kernel = int(
        lab.run("lab1", ["cat", "/proc/sys/net/ipv4/ip_local_port_range"]).stdout.split()[0]
    )
    assert {port for _, port in found if port < first_of_kernel} <= planned
    assert apis <= set(found), "the scan found nothing of the engines"
    assert not {(addresses[0], port) for _, port in apis} & set(found)
    probe = Path(__file__).with_name("grpc_probe.py").read_text()
    doors = [one for one in found if one[1] in planned - {22} and one not in apis]
    assert doors, "the scan found nothing of Ray"
    answers = two_hosts_served.python(
        "lab2", probe, json.dumps(doors), interpreter=two_hosts_served.engine_python
    )
    assert len(answers) >= len(doors)
    let_in = [
        answer
        for answer in answers
        if answer["port"] not in metrics
        and answer["open"]
        and (answer["http"] in range(200, 300) or "OK" in answer["grpc"].values())
    ]
    assert let_in == []


def test_hosts_bring_each_other_a_model_of_the_hub_and_mend_it(
    two_hosts_served: TwoHosts,
) -> None:
    lab = two_hosts_served.lab
    models, hosts = f"{CLUSTER_DIR}/models/org--tiny", ("lab1", "lab2")
    with hub_on(lab, "lab1") as url:
        variables = {
            "weights_engines": [{"name": "tiny", "model": MODEL}],
            "weights_outside_hosts": ["lab1"],
            "sources_environment": {"HF_ENDPOINT": url},
        }

        def bring(**more: Any) -> Ran:
            told = json.dumps({**variables, **more})
            return two_hosts_served.run("-e", told, playbook="playbooks/weights.yml")

        announced = two_hosts_served.run(
            "--check", "-e", json.dumps(variables), playbook="playbooks/weights.yml"
        )
        assert announced.status == 0, announced.output
        assert announced.changed
        first = bring()
        assert first.status == 0, first.output
        wanted = digests(lab, "lab1", f"{DIRECTORY}/tree")
        assert [digests(lab, host, models) for host in hosts] == [wanted, wanted]
        again = bring()
        assert again.status == 0 and again.changed == [], again.output
        shard = f"{models}/model-00002-of-00004.safetensors"
        lab.run("lab2", ["python3", "-c", SPOIL, shard])
        mended = bring(weights_rehash=True)
        assert mended.status == 0, mended.output
        assert f"lab2: {shard} was not what the hub says it is; it was fetched again" in (
            " ".join(mended.output.split())
        )
        assert digests(lab, "lab2", models) == wanted
    knock = "import socket, sys; socket.create_connection((sys.argv[1], 20014), timeout=5)"
    knocked = lab.run("lab1", ["python3", "-c", knock, lab.address("lab2")], check=False)
    assert "ConnectionRefusedError" in knocked.stderr, "what passes weights on is still there"


def test_hosts_that_share_a_directory_bring_a_model_once(two_hosts_served: TwoHosts) -> None:
    lab = two_hosts_served.lab
    shared = f"{MOUNT}/models-{lab.record.token}"
    with hub_on(lab, "lab1") as url:
        variables = {
            "weights_engines": [
                {"name": "tiny", "model": MODEL},
                {"name": "other", "model": "random:llama", "hosts": ["lab2"]},
            ],
            "models_dir": shared,
            "sources_environment": {"HF_ENDPOINT": url},
        }
        told = ("-e", json.dumps(variables))
        try:
            first = two_hosts_served.run(*told, playbook="playbooks/weights.yml")
            assert first.status == 0, first.output
            fetched = [one for one in first.changed if "Start to fetch" in one]
            assert len(fetched) == 1 and fetched[0].endswith("Start to fetch (lab1)")
            wanted = digests(lab, "lab1", f"{DIRECTORY}/tree")
            assert digests(lab, "lab2", f"{shared}/org--tiny") == wanted
            # What the other host alone needs was brought as well.
            assert "config.json" in digests(lab, "lab2", f"{shared}/random--llama")
            again = two_hosts_served.run(*told, playbook="playbooks/weights.yml")
            assert again.status == 0 and again.changed == [], again.output
        finally:
            lab.run("lab1", ["rm", "-rf", shared])


# Without a trace in size or time, as a bad disk does.
SPOIL = """
import os, sys
found = os.stat(sys.argv[1])
with open(sys.argv[1], "r+b") as content:
    content.seek(3 << 20)
    byte = content.read(1)[0]
    content.seek(3 << 20)
    content.write(bytes([byte ^ 1]))
os.utime(sys.argv[1], ns=(found.st_atime_ns, found.st_mtime_ns))
"""


def test_a_server_over_ray_finishes_its_stream_before_it_ends(two_hosts_served: TwoHosts) -> None:
    chat = two_hosts_served.plan["chat"]
    url = f"http://{two_hosts_served.lab.address('lab1')}:{chat['ports']['api']}"
    key, unit = f"{CLUSTER_DIR}/secrets/api_key", "vllm-demo-chat-serve"
    found = two_hosts_served.python("lab1", DRAIN, url, key, chat["served_name"], unit)
    wanted = found.pop("wanted")
    assert found == {"tokens": wanted, "whole": True, "refused": 503, "ended": True}


def test_teardown_leaves_no_process_on_any_host(two_hosts_served: TwoHosts) -> None:
    ran = two_hosts_served.run(playbook="playbooks/teardown.yml")
    assert ran.status == 0, ran.output
    assert two_hosts_served.processes() == {"lab1": [], "lab2": []}
