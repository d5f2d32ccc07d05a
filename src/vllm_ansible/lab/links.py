"""Shape, slow, spoil and cut the links of a running lab, and put them right again."""

import json
import sys
from pathlib import Path
from typing import Protocol

from . import shaping
from .commands import LabError, run
from .host import inspect_host
from .network import inspect_network
from .paths import LabPaths
from .process import start, stop
from .record import HostRecord, LinkRecord, Record, WireRecord, exclusive, save

WIRE = Path(__file__).with_name("wire.py")


class Running(Protocol):
    """What a link has to know of its lab."""

    paths: LabPaths
    record: Record


class Link:
    """One host's link to a network or, with a peer, the path between two hosts."""

    def __init__(self, lab: Running, host: str, peer: str = "", network: str = "") -> None:
        self.lab = lab
        self.network = network or lab.record.data_network.role
        lab.record.network(self.network)
        # A pair is one thing, whoever is named first.
        self.host, self.peer = sorted((host, peer)) if peer else (host, "")
        for name in filter(None, (self.host, self.peer)):
            lab.record.host(name)
        if self.host == self.peer:
            raise LabError(f"A link needs two different hosts, found {host!r} twice.")

    def limit(self, rate: str = "", delay: str = "", loss: float = 0.0) -> None:
        """Give the link a rate, a one-way delay and a loss in percent, each in both directions."""
        self._set(LinkRecord(self.host, self.network, self.peer, rate, delay, loss))

    def cut(self) -> None:
        """Let nothing through, silently, as a pulled cable does."""
        self._set(LinkRecord(self.host, self.network, self.peer, cut=True))

    def restore(self) -> None:
        """Make the link as good as new."""
        self._set(None)

    def _set(self, wanted: LinkRecord | None) -> None:
        if wanted:
            shaping.check(wanted)
        record, me = self.lab.record, (self.host, self.network, self.peer)
        with exclusive(self.lab.paths.lock):
            record.links = [one for one in record.links if (one.host, one.network, one.peer) != me]
            record.links += [wanted] if wanted else []
            save(record, self.lab.paths.record)
            apply(record, [self.host, *filter(None, [self.peer])])
            save(record, self.lab.paths.record)


def apply(record: Record, names: list[str]) -> None:
    """Make the links of these hosts as recorded, from whatever they are now."""
    for index, host in enumerate(record.hosts):
        if host.name not in names:
            continue
        for number, network in enumerate(record.networks):
            short = f"vl{record.token[:6]}{index:x}{number}"
            clear(record, short)
            # The host end's device name changes with every start of the container.
            interface, pid = cable(host, number)
            links = [one for one in record.links if one.network == network.role]
            addresses = {one.name: one.addresses[network.role] for one in record.hosts}
            # Whole segments would be lost or delayed as one packet of 64 KiB.
            touched = any(host.name in (one.host, one.peer) for one in links)
            segments = ["gso_max_segs", "1" if touched else "65535"]
            run(["ip", "link", "set", "dev", interface, *segments])
            inside = ["nsenter", f"--net=/proc/{pid}/ns/net", "ip", "link", "set"]
            run([*inside, "dev", f"eth{number}", *segments])
            for qdisc in (["root"], ["ingress"]):
                run(["tc", "qdisc", "del", "dev", interface, *qdisc], check=False)
            port = shaping.Port(host.name, addresses[host.name], interface, f"{short}u")
            own, peers = shaping.delays(port, links, addresses)
            if own or peers:
                bridge = inspect_network(network)["network_interface"]
                wire = start_wire(record, interface, f"{short}t", bridge, own, peers)
                port = shaping.Port(port.host, port.address, wire.tap, port.helper)
            for command in shaping.rates(port, links, addresses):
                run(command)
    apply_losses(record)


def apply_losses(record: Record) -> None:
    """Replace this lab's table of dropped packets in one transaction."""
    taps = {wire.interface: wire.tap for wire in record.wires}
    ports = {}
    for host in record.hosts:
        for number, network in enumerate(record.networks):
            if any(host.name in (one.host, one.peer) for one in record.links):
                device = cable(host, number)[0]
                address = host.addresses[network.role]
                port = shaping.Port(host.name, address, taps.get(device, device), "")
                ports[host.name, network.role] = port
    script = shaping.losses(f"vllm_lab_{record.token}", ports, record.links)
    run(["nft", "-f", "-"], data=script.encode())


def cable(host: HostRecord, number: int) -> tuple[str, int]:
    """Return the name of the bridge's end of a host's cable, and the host's first process."""
    found = inspect_host(host)
    if found is None or not found["State"]["Running"]:
        raise LabError(f"Host {host.name} is not running, so its link cannot be changed; run `up`.")
    pid = int(found["State"]["Pid"])
    inside = ["nsenter", f"--net=/proc/{pid}/ns/net", "ip", "-j", "link", "show", f"eth{number}"]
    other_end = json.loads(run(inside).stdout)[0]["link_index"]
    for device in json.loads(run(["ip", "-j", "link", "show", "type", "veth"]).stdout):
        if device["ifindex"] == other_end:
            return str(device["ifname"]), pid
    raise LabError(f"The cable of host {host.name} has no end on this machine.")


def clear(record: Record, short: str) -> None:
    """Take away the helper devices and the program that one cable may have."""
    for wire in [one for one in record.wires if one.tap == f"{short}t"]:
        stop(wire.process)
        record.wires.remove(wire)
    run(["ip", "link", "del", f"{short}u"], check=False)


def clear_all(record: Record) -> None:
    """Take away everything that links of this lab put on this machine."""
    for index in range(len(record.hosts)):
        for number in range(len(record.networks)):
            clear(record, f"vl{record.token[:6]}{index:x}{number}")
    table = ["bridge", f"vllm_lab_{record.token}"]
    run(["nft", "delete", "table", *table], check=False)


def start_wire(
    record: Record, interface: str, tap: str, bridge: str, own: float, peers: dict[str, float]
) -> WireRecord:
    """Start the program that delays one cable's frames, and wait until it carries them."""

    def carries() -> bool:
        argv = ["ip", "-j", "link", "show", "dev", tap, "master", bridge]
        shown = run(argv, check=False)
        return shown.returncode == 0 and '"LOWER_UP"' in shown.stdout

    extra = [f"{address}={seconds}" for address, seconds in peers.items()]
    argv = [sys.executable, str(WIRE), interface, tap, bridge, str(own), *extra]
    wire = WireRecord(interface, tap, start(argv, carries, timeout=120))
    record.wires.append(wire)
    return wire
