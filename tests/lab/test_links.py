"""Links do what they are told: measured between real hosts, with bounds a busy machine keeps."""

import re
import time
from collections.abc import Iterator

import pytest

from vllm_ansible.lab import Lab, LabError

pytestmark = pytest.mark.lab

MEGABYTES = 4
# How long a machine that is short of processors may spoil one measurement after the other.
PATIENCE = 180
SERVE = f"""
import socket
server = socket.create_server(("", 9000))
while True:
    with server.accept()[0] as client:
        client.sendall(bytes({MEGABYTES} << 20))
"""
FETCH = """
import socket, sys, time
start, total = time.monotonic(), 0
with socket.create_connection((sys.argv[1], 9000), timeout=20) as client:
    while data := client.recv(1 << 20):
        total += len(data)
print(total / (time.monotonic() - start) * 8 / 1e6)
"""


@pytest.fixture(scope="module")
def servers(lab: Lab) -> Lab:
    for host in ("lab1", "lab2"):
        lab.run(host, ["systemd-run", "--unit=source", "python3", "-c", SERVE])
        listening = "until ss -ltn | grep -q :9000; do sleep 0.1; done"
        lab.run(host, ["timeout", "300", "sh", "-c", listening])
    return lab


@pytest.fixture(autouse=True)
def restored(lab: Lab) -> Iterator[None]:
    yield
    for link in list(lab.record.links):
        lab.link(link.host, link.peer, link.network).restore()


def megabits(
    lab: Lab, sender: str, receiver: str, network: str = "data", *, over: float = 10
) -> float:
    """Return the first rate above `over`, or else the best: a busy processor slows it."""
    address, best, end = lab.address(sender, network), 0.0, time.monotonic() + PATIENCE
    while best <= over and time.monotonic() < end:
        rate = lab.run(receiver, ["python3", "-c", FETCH, address], check=False).stdout
        best = max(best, float(rate or 0))
    return best


def ping(lab: Lab, host: str, peer: str, *, count: int = 5, network: str = "data") -> str:
    argv = ["ping", "-q", "-c", str(count), "-i", "0.02", "-W", "1", lab.address(peer, network)]
    return lab.run(host, argv, check=False).stdout


def round_trip(lab: Lab, host: str, peer: str, *, under: float) -> float:
    """Return the first least of a few that is below, or else the least of all, in ms.

    The others wait for processors, too; what delays frames is a program itself.
    """
    least, end = float("inf"), time.monotonic() + PATIENCE
    while least >= under and time.monotonic() < end:
        if found := re.search(r"= ([\d.]+)/", ping(lab, host, peer)):
            least = min(least, float(found[1]))
    return least


def lost(report: str) -> float:
    found = re.search(r"([\d.]+)% packet loss", report)
    assert found, report
    return float(found[1])


def test_a_rate_holds_in_both_directions_and_ends_with_restore(servers: Lab) -> None:
    # More than a link of 20 Mbit/s carries.
    assert megabits(servers, "lab1", "lab2", over=25) > 25
    servers.link("lab1").limit(rate="20mbit")
    assert 10 < megabits(servers, "lab1", "lab2") < 22
    assert 10 < megabits(servers, "lab2", "lab1") < 22
    servers.link("lab1").restore()
    assert megabits(servers, "lab1", "lab2", over=25) > 25


def test_a_rate_on_one_network_leaves_the_other_alone(servers: Lab) -> None:
    servers.link("lab1").limit(rate="20mbit")
    assert megabits(servers, "lab1", "lab2", "front", over=25) > 25


def test_a_pair_has_its_own_rate(servers: Lab) -> None:
    servers.link("lab1", "lab2").limit(rate="20mbit")
    assert 10 < megabits(servers, "lab1", "lab2") < 22
    assert 10 < megabits(servers, "lab2", "lab1") < 22


def test_a_delay_counts_once_in_each_direction(lab: Lab) -> None:
    lab.link("lab1").limit(delay="25ms")
    assert 50 <= round_trip(lab, "lab1", "lab2", under=75) < 75
    lab.link("lab1").restore()
    assert round_trip(lab, "lab1", "lab2", under=25) < 25


def test_a_delay_of_a_pair_counts_once_in_each_direction(lab: Lab) -> None:
    lab.link("lab2", "lab1").limit(delay="25ms")
    assert 50 <= round_trip(lab, "lab1", "lab2", under=75) < 75


def test_rate_and_delay_work_together(servers: Lab) -> None:
    servers.link("lab1").limit(rate="20mbit", delay="5ms")
    assert 10 <= round_trip(servers, "lab1", "lab2", under=40) < 40
    assert 8 < megabits(servers, "lab1", "lab2", over=8) < 22
    assert 8 < megabits(servers, "lab2", "lab1", over=8) < 22


def test_a_delayed_link_still_carries_large_transfers(servers: Lab) -> None:
    servers.link("lab1").limit(delay="1ms")
    assert megabits(servers, "lab1", "lab2", over=20) > 20
    assert megabits(servers, "lab2", "lab1", over=20) > 20


def test_loss_is_near_what_was_asked_each_way(lab: Lab) -> None:
    lab.link("lab1").limit(loss=20)
    # Two crossings: 1 - 0.8 * 0.8 = 36 %, give or take five deviations of 400 tries.
    assert 24 < lost(ping(lab, "lab1", "lab2", count=400)) < 48


def test_a_cut_pair_is_silent_and_reaches_others(lab: Lab) -> None:
    lab.cut("lab1", "lab2")
    assert lost(ping(lab, "lab1", "lab2")) == 100
    assert lost(ping(lab, "lab2", "lab1")) == 100
    # Who is given no time for a second loses answers that have come.
    assert lost(ping(lab, "lab1", "lab2", network="front")) < 100


def test_a_cut_host_is_unreachable_until_restored(lab: Lab) -> None:
    lab.cut("lab1", network="front")
    with pytest.raises(LabError, match="was not done"):
        lab.run("lab1", ["true"], timeout=5)
    lab.link("lab1", network="front").restore()
    assert lab.run("lab1", ["true"]).returncode == 0


def test_a_delayed_link_can_be_cut(lab: Lab) -> None:
    lab.link("lab1").limit(delay="5ms")
    lab.cut("lab1", "lab2")
    assert lost(ping(lab, "lab1", "lab2")) == 100


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"rate": "fast"}, "100mbit"),
        ({"delay": "20"}, "20ms"),
        ({"loss": 101}, "0 to 100"),
    ],
)
def test_a_limit_that_no_tool_understands_is_refused(
    lab: Lab, limits: dict[str, str], said: str
) -> None:
    with pytest.raises(LabError, match=said):
        lab.link("lab1").limit(**limits)  # type: ignore[arg-type]  # wrong on purpose
    assert lab.record.links == []


def test_an_unknown_host_is_named_with_those_that_exist(lab: Lab) -> None:
    with pytest.raises(LabError, match=r"'lab9'.*lab1, lab2"):
        lab.link("lab9")
