"""Every fault between three real hosts is named by the role reach, and health is no fault.

Each takes half a minute: one of each kind, the others in make soak; tests/unit/verify/reach has
them all.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from vllm_ansible.lab import Lab
from vllm_ansible.lab.host import inspect_host

pytestmark = pytest.mark.lab

ROOT = Path(__file__).parents[2]
CLUSTER = "/opt/vllm-ansible/reach"
KEY = "a key of this test, of no use to anybody"
HOSTS = ("lab1", "lab2", "lab3")
ENGINES = [
    {"name": "chat", "model": "package:smollm2-135m-instruct"},
    {"name": "code", "model": "package:smollm2-135m-instruct"},
]
STRANGER = "import socket, time; s = socket.create_server(('', 20003)); time.sleep(600)"
LISTENING = (
    "import sys; sys.stdout.write(open('/proc/net/tcp').read() + open('/proc/net/udp').read())"
)
Measure = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def three(make_lab: Callable[..., Lab], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with make_lab(3, "test", second_network=True, root=tmp_path_factory.mktemp("reach")) as lab:
        for host in HOSTS:
            lab.run(host, ["useradd", "--system", "vllm-reach"])
            lab.run(host, ["mkdir", "-p", f"{CLUSTER}/secrets", f"{CLUSTER}/tasks"])
            write_key(lab, host, KEY)
        yield lab


@pytest.fixture(autouse=True)
def mended(three: Lab) -> Iterator[None]:
    yield
    for link in list(three.record.links):
        three.link(link.host, link.peer, link.network).restore()
    for host in HOSTS:
        nft(three, host, "flush ruleset")
        three.run(host, ["systemctl", "stop", "stranger"], check=False)
        write_key(three, host, KEY)


@pytest.fixture
def measure(three: Lab, tmp_path: Path) -> Measure:
    """Play the role on all hosts and return what its gate said."""

    def play() -> dict[str, Any]:
        sites = {
            host: {
                "address": three.address(host),
                "cluster_dir": CLUSTER,
                "service_user": "vllm-reach",
                "privileges": "root",
            }
            for host in HOSTS
        }
        page = [
            {
                "hosts": "gpu",
                "gather_facts": False,
                "any_errors_fatal": True,
                "vars": {
                    "engines": ENGINES,
                    "port_base": 20000,
                    "verify_accept": [],
                    # A slow machine takes long from the first host's start to the last one's end.
                    "reach_life_seconds": 900,
                    "sites": sites,
                    "site_host": "{{ sites[inventory_hostname] }}",
                },
                "roles": ["reach"],
            }
        ]
        (tmp_path / "ansible.cfg").touch()
        (tmp_path / "play.yml").write_text(yaml.safe_dump(page, sort_keys=False))
        done = subprocess.run(
            [
                Path(sys.executable).with_name("ansible-playbook"),
                *("-i", str(three.inventory), str(tmp_path / "play.yml")),
            ],
            cwd=ROOT,
            env={
                **{name: value for name, value in os.environ.items() if "ANSIBLE" not in name},
                # Not the repository's settings: their callbacks would record this as a run.
                "ANSIBLE_CONFIG": str(tmp_path / "ansible.cfg"),
                "ANSIBLE_LIBRARY": str(ROOT / "library"),
                "ANSIBLE_ACTION_PLUGINS": str(ROOT / "action_plugins"),
                "ANSIBLE_FILTER_PLUGINS": str(ROOT / "filter_plugins"),
                "ANSIBLE_MODULE_UTILS": str(ROOT / "src"),
                "ANSIBLE_ROLES_PATH": str(ROOT / "roles"),
                "ANSIBLE_INJECT_FACT_VARS": "false",
                "ANSIBLE_PIPELINING": "true",
                "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json",
                # Shared connections would outlive the hosts, whose addresses come again.
                "ANSIBLE_SSH_ARGS": "-o ControlMaster=no",
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
        )
        assert KEY not in done.stdout + done.stderr
        assert "{" in done.stdout, done.stderr
        printed = done.stdout[done.stdout.index("{") :]
        tasks = {
            one["task"]["name"]: one["hosts"] for one in json.loads(printed)["plays"][0]["tasks"]
        }
        told = [one for hosts in tasks.values() for one in hosts.values()]
        judged = tasks.get("reach : Judge that the hosts reach each other", {})
        failed = [one for one in told if one.get("failed")]
        result = next(iter(judged.values()), None) or failed[0]
        seconds = [
            one["seconds"]
            for name in tasks
            if "Measure to every" in name
            for one in tasks[name].values()
        ]
        print(f"probes took {seconds} s: {result.get('msg') or result['evidence']['summary']}")
        assert nothing_runs(three)
        return result

    return play


def nothing_runs(lab: Lab) -> bool:
    """Tell whether no responder is left anywhere."""
    return all(
        lab.run(host, ["pgrep", "-u", "vllm-reach"], check=False).stdout == "" for host in HOSTS
    )


def write_key(lab: Lab, host: str, secret: str) -> None:
    path = f"{CLUSTER}/secrets/ray_token"
    lab.run(host, ["sh", "-c", f"umask 077; printf '%s' '{secret}' > {path}"])


def firewall(lab: Lab, host: str, *rules: str, hook: str = "input") -> None:
    """Give a host a firewall of its own."""
    lines = ["table inet reach {", "chain c {", f"type filter hook {hook} priority 0", *rules]
    nft(lab, host, "\n".join([*lines, "}", "}"]))


def nft(lab: Lab, host: str, command: str) -> None:
    """Run this machine's nft in the network of a host, which has none."""
    found = inspect_host(lab.record.host(host))
    assert found is not None
    network = f"--net=/proc/{found['State']['Pid']}/ns/net"
    subprocess.run(["nsenter", network, "nft", command], check=True)


def missed(result: dict[str, Any], check: str) -> list[dict[str, Any]]:
    found = [one for one in result.get("missed", []) if one["check"] == check]
    assert found, result
    assert len(result["missed"]) == len(found), result["missed"]
    return found


def test_healthy_hosts_pass_with_figures_and_nothing_is_left(three: Lab, measure: Measure) -> None:
    result = measure()
    values = result["evidence"]["values"]
    # 2 engines of 93 ports, 3 of the cluster and 3 of the kernel's own range, in both directions
    # of three pairs.
    assert (values["pairs"], values["connections"]) == (3, 6 * (2 * 93 + 3 + 3))
    assert values["blocked"] == 0
    assert values["loss_worst_percent"] < 0.5
    # It is one clock: what is off is what a busy processor leaves uncertain.
    uncertain = sum(values["clock_uncertainty_seconds"].values())
    assert max(map(abs, values["clock_offset_seconds"].values())) <= uncertain + 0.001
    assert values["round_trip_median_us"] > 0
    assert values["noted"] == []
    for host in HOSTS:
        assert three.run(host, ["ls", "-A", f"{CLUSTER}/tasks"]).stdout.split() == [".lock"]
        table = three.run(host, ["python3", "-c", LISTENING]).stdout
        own = "".join(f"{int(part):02X}" for part in reversed(three.address(host).split(".")))
        assert re.findall(rf"\b{own}:\w{{4}} 00000000:0000", table) == []


def test_a_dropped_port_is_named_with_the_host_that_drops_it(three: Lab, measure: Measure) -> None:
    firewall(three, "lab2", "tcp dport 20003 drop")
    (found,) = missed(measure(), "reach_ports")
    assert found["what"] == "no other host reaches ports 20003 of lab2"
    assert "Ray node manager of engine chat" in found["expected"]
    assert "time out" in found["found"]
    assert found["where"] == "lab2" and three.address("lab2") in found["found"]
    assert "on lab2: " in found["fix"] and "nft list ruleset" in found["fix"]


@pytest.mark.soak
def test_a_firewall_open_for_planned_ports_only_is_found_by_the_kernels_own(
    three: Lab, measure: Measure
) -> None:
    first = three.run("lab1", ["cat", "/proc/sys/net/ipv4/ip_local_port_range"]).stdout.split()[0]
    rule = f"iifname eth1 tcp dport {first}-65535 ct state new drop"
    firewall(three, "lab3", rule)
    (found,) = missed(measure(), "reach_ports")
    assert re.fullmatch(r"no other host reaches ports \d+, \d+, \d+ of lab3", found["what"])
    assert "the kernel's own range: gloo, NCCL" in found["expected"]


@pytest.mark.soak
def test_a_rejecting_rule_is_told_from_a_port_where_nobody_listens(
    three: Lab, measure: Measure
) -> None:
    source = three.address("lab1")
    firewall(three, "lab2", f"ip saddr {source} tcp dport 20020-20099 reject with tcp reset")
    (found,) = missed(measure(), "reach_ports")
    assert found["what"] == "lab1 does not reach ports 20020-20099 of lab2"
    assert "Ray workers of engine chat" in found["expected"]
    assert found["found"].endswith(
        "refused although a responder listens there: a firewall rejects it"
    )


def test_an_outgoing_rule_is_blamed_on_the_host_that_has_it(three: Lab, measure: Measure) -> None:
    firewall(three, "lab3", "tcp dport 8001 drop", hook="output")
    (found,) = missed(measure(), "reach_ports")
    assert found["what"] == "lab3 does not reach ports 8001 of any other host"
    assert "the API of engine code" in found["expected"]


def test_a_cut_pair_is_named_and_no_host_is(three: Lab, measure: Measure) -> None:
    three.cut("lab1", "lab3")
    (found,) = missed(measure(), "reach_ports")
    assert found["what"] == "lab1 and lab3 do not reach each other"
    for host in ("lab1", "lab3"):
        assert three.address(host) in found["found"]


@pytest.mark.soak
def test_a_host_that_is_cut_off_is_named_alone(three: Lab, measure: Measure) -> None:
    three.cut("lab2")
    (found,) = missed(measure(), "reach_ports")
    assert found["what"] == "lab2 reaches no other host, and none reaches it"


def test_loss_is_blamed_on_the_host_whose_link_has_it(three: Lab, measure: Measure) -> None:
    three.link("lab2").limit(loss=2)
    (found,) = missed(measure(), "reach_loss")
    assert found["what"].startswith("the links of lab2 lose up to")
    assert "lab1 -> lab2" in found["found"] and "lab2 -> lab3" in found["found"]


@pytest.mark.soak
def test_loss_of_one_pair_is_blamed_on_the_pair(three: Lab, measure: Measure) -> None:
    three.link("lab1", "lab2").limit(loss=2)
    (found,) = missed(measure(), "reach_loss")
    assert found["what"].startswith("the path between lab1 and lab2 loses up to")


@pytest.mark.soak
def test_a_slow_link_is_no_loss(three: Lab, measure: Measure) -> None:
    three.link("lab1").limit(rate="10mbit")
    result = measure()
    assert result["evidence"]["values"]["loss_worst_percent"] < 0.5


@pytest.mark.soak
def test_a_firewall_without_udp_leaves_loss_unmeasured_and_says_so(
    three: Lab, measure: Measure
) -> None:
    firewall(three, "lab2", "iifname eth1 ip protocol udp drop")
    result = measure()
    silent = {tuple(sorted(pair)) for pair in result["evidence"]["values"]["loss_not_measured"]}
    assert silent == {("lab1", "lab2"), ("lab2", "lab3")}
    assert "loss between lab1 <-> lab2 was not measured" in " ".join(
        result["evidence"]["values"]["noted"]
    )


def test_a_stranger_on_a_planned_port_is_named_by_program_and_number(
    three: Lab, measure: Measure
) -> None:
    three.run("lab1", ["systemd-run", "--unit=stranger", "python3", "-c", STRANGER])
    listening = "until ss -ltn | grep -q :20003; do sleep 0.1; done"
    three.run("lab1", ["timeout", "300", "sh", "-c", listening])
    pid = three.run("lab1", ["systemctl", "show", "-P", "MainPID", "stranger"]).stdout.strip()
    (found,) = missed(measure(), "reach_strangers")
    assert found["found"] == f"python3 (process {pid} of root)"
    assert found["what"] == f"ports 20003 of lab1 are taken by {found['found']}"
    assert "Ray node manager of engine chat" in found["expected"]


def test_another_key_gets_no_answer(three: Lab, measure: Measure) -> None:
    write_key(three, "lab3", "the key of some other cluster")
    (found,) = missed(measure(), "reach_key")
    expected = "lab3 and the others (lab1, lab2) do not know each other as hosts of one cluster"
    assert found["what"] == expected
    assert found["where"] == "lab3"


@pytest.mark.soak
def test_a_delayed_pair_is_slow_but_no_failure(three: Lab, measure: Measure) -> None:
    three.link("lab1", "lab2").limit(delay="30ms")
    values = measure()["evidence"]["values"]
    assert values["round_trip_us"]["lab1"]["lab2"] > 60000
    assert abs(values["clock_offset_seconds"]["lab2"]) < 0.05
    assert "the round trip between lab1 and lab2 is" in " ".join(values["noted"])


def test_a_host_without_a_key_ends_it_and_the_others_are_stopped(
    three: Lab, measure: Measure
) -> None:
    three.run("lab2", ["rm", f"{CLUSTER}/secrets/ray_token"])
    result = measure()
    assert "the cluster's key cannot be read" in result["msg"]
    assert result["fix"] == "run the stage prepare (--tags prepare)"
