"""The record of what one lab made: written before each thing is made, read to remove it."""

import fcntl
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .commands import LabError
from .process import ProcessRecord

VERSION = 1


@dataclass
class NetworkRecord:
    """One bridge network."""

    role: str
    name: str
    subnet: str
    internal: bool
    id: str = ""


@dataclass
class HostRecord:
    """One container and its address on each network, by the network's role."""

    name: str
    container: str
    addresses: dict[str, str]
    id: str = ""


@dataclass
class LinkRecord:
    """What was done to one host's link, or to the pair it forms with a peer."""

    host: str
    network: str
    peer: str = ""
    rate: str = ""
    delay: str = ""
    loss: float = 0.0
    cut: bool = False


@dataclass
class WireRecord:
    """The program that delays one cable, and the device by which it takes a host's place."""

    interface: str
    tap: str
    process: ProcessRecord


@dataclass
class Record:
    """Everything that `down` has to know; `token` makes this lab's names its own."""

    name: str
    token: str
    image: str = ""
    cache: str = ""
    inventory: str = ""
    networks: list[NetworkRecord] = field(default_factory=list)
    hosts: list[HostRecord] = field(default_factory=list)
    links: list[LinkRecord] = field(default_factory=list)
    wires: list[WireRecord] = field(default_factory=list)

    def host(self, name: str) -> HostRecord:
        """Return one host, or say which exist."""
        for host in self.hosts:
            if host.name == name:
                return host
        known = ", ".join(host.name for host in self.hosts) or "none"
        raise LabError(f"Lab {self.name} has no host {name!r}; its hosts: {known}.")

    def network(self, role: str) -> NetworkRecord:
        """Return one network by its role, or say which exist."""
        for network in self.networks:
            if network.role == role:
                return network
        known = ", ".join(network.role for network in self.networks) or "none"
        raise LabError(f"Lab {self.name} has no network {role!r}; its networks: {known}.")

    @property
    def data_network(self) -> NetworkRecord:
        """The network that engines are meant to use: the last one."""
        return self.networks[-1]


def new_record(name: str) -> Record:
    """Return an empty record with names that no other lab can have."""
    return Record(name=name, token=secrets.token_hex(4))


def save(record: Record, path: Path) -> None:
    """Write the record whole or not at all, readable by its owner only."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(json.dumps({"version": VERSION, **asdict(record)}, indent=2) + "\n")
    temporary.chmod(0o600)
    temporary.replace(path)


def load(path: Path) -> Record | None:
    """Read the record of a lab, or None where there is no lab."""
    try:
        data: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except json.JSONDecodeError as error:
        raise LabError(f"The record {path} cannot be read: {error}.") from error
    if data.pop("version", None) != VERSION:
        raise LabError(f"The record {path} was written by another version of the lab.")
    try:
        return read(data)
    except (KeyError, TypeError) as error:
        raise LabError(f"The record {path} is not whole: {error}.") from error


def read(data: dict[str, Any]) -> Record:
    """Turn what a record's file holds into a record."""
    data["networks"] = [NetworkRecord(**one) for one in data["networks"]]
    data["hosts"] = [HostRecord(**one) for one in data["hosts"]]
    data["links"] = [LinkRecord(**one) for one in data["links"]]
    data["wires"] = [
        WireRecord(one["interface"], one["tap"], ProcessRecord(**one["process"]))
        for one in data["wires"]
    ]
    return Record(**data)


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold a lock file for as long as a command changes something, waiting for its turn."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
