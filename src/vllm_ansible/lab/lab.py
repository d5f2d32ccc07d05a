"""Start, look at and remove one lab of real hosts."""

import shlex
import shutil
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

from . import host as hosts
from . import network as networks
from .cache import SharedCache, machine_pip_cache
from .commands import LabError, podman, require_root, require_tools, run
from .image import ensure_image
from .inventory import inventory_file, remove_inventory, write_inventory
from .keys import ensure_key, ssh_options, write_known_hosts
from .leftovers import remove_leftovers
from .links import Link, apply, clear_all
from .paths import DEFAULT_NAME, REPOSITORY, LabPaths, cache_root, lab_paths
from .record import HostRecord, Record, exclusive, load, new_record, save
from .sources import Sources, discover

TOOLS = (
    *("podman", "runc", "conmon", "netavark", "mmdebstrap"),
    *("ip", "tc", "nft", "ssh", "ssh-keygen"),
)
Progress = Callable[[str], None]


def silent(_: str) -> None:
    """Say nothing: what tests want."""


class Lab:
    """One lab: its record, its places, and what can be done with it."""

    def __init__(self, paths: LabPaths, record: Record, progress: Progress = silent) -> None:
        self.paths = paths
        self.record = record
        self.progress = progress

    @classmethod
    def create(
        cls,
        hosts: int = 3,
        name: str = DEFAULT_NAME,
        *,
        second_network: bool = False,
        inventory: Path | None = None,
        packages: Sequence[str] = (),
        setup: Sequence[str] = (),
        root: Path = REPOSITORY,
        progress: Progress = silent,
    ) -> "Lab":
        """Return a running lab, making what is missing; safe to repeat after an interruption.

        `packages` of Debian and `setup`, hooks of mmdebstrap, are added to those of every host.
        """
        require_root()
        require_tools(TOOLS)
        paths = lab_paths(name, inventory, root)
        with exclusive(paths.lock):
            record = load(paths.record) or new_record(name)
            if record.inventory and inventory is None:
                paths = lab_paths(name, Path(record.inventory).parent, root)
            lab = cls(paths, record, progress)
            lab._up(hosts, second_network, packages, setup)
        return lab

    @classmethod
    def open(
        cls, name: str = DEFAULT_NAME, *, root: Path = REPOSITORY, progress: Progress = silent
    ) -> "Lab":
        """Return a lab that was made before."""
        paths = lab_paths(name, None, root)
        record = load(paths.record)
        if record is None:
            raise LabError(
                f"There is no lab named {name!r} in {paths.state.parent}; "
                f"make it with `python -m vllm_ansible.lab up --name {name}`."
            )
        if record.inventory:
            paths = lab_paths(name, Path(record.inventory).parent, root)
        return cls(paths, record, progress)

    def __enter__(self) -> "Lab":
        """Hand the lab to a test."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Remove everything, whatever the test did."""
        self.down()

    def _up(
        self, count: int, second_network: bool, packages: Sequence[str], setup: Sequence[str]
    ) -> None:
        record = self.record
        self._refuse_other_shape(count, second_network)
        record.cache = record.cache or str(cache_root())
        self._save()
        with ThreadPoolExecutor() as pool:
            cached = pool.submit(self.cache.prepare)
            with exclusive(cache_root() / ".lock"):
                remove_leftovers(self.cache.root / "hosts")
                record.image = record.image or ensure_image(self.progress, packages, setup)
                if not record.networks:
                    record.networks = networks.plan_networks(record, second_network)
                    self._save()
                for network in record.networks:
                    networks.create_network(network, record.token)
            if not record.hosts:
                record.hosts = [self._plan_host(index) for index in range(count)]
            self._save()
            cached.result()
            sources = self.sources()
            ensure_key(self.paths.key, f"lab {record.name}")
            for _ in pool.map(lambda host: self._start(host, sources), record.hosts):
                self._save()
            if self.record.links:
                apply(self.record, [host.name for host in self.record.hosts])
            self._pin()
            if record.inventory != str(inventory_file(self.paths)):
                remove_inventory(record)
            record.inventory = str(inventory_file(self.paths))
            self._save()
            write_inventory(record, self.paths, sources.environment | self.cache.environment)
            self.progress(f"waiting for {len(record.hosts)} hosts to answer SSH")
            front = record.networks[0].role
            for _ in pool.map(
                lambda host: hosts.wait_for_ssh(host, self.paths, host.addresses[front]),
                record.hosts,
            ):
                pass

    def _refuse_other_shape(self, count: int, second_network: bool) -> None:
        if count < 1:
            raise LabError(f"A lab needs at least one host, asked for {count}.")
        had = (len(self.record.hosts) or count, len(self.record.networks) or 1 + second_network)
        if had != (count, 1 + second_network):
            raise LabError(
                f"Lab {self.record.name} exists with {had[0]} hosts on {had[1]} networks, asked "
                f"for {count} on {1 + second_network}; run `down` first or give another --name."
            )

    def _plan_host(self, index: int) -> HostRecord:
        name = f"lab{index + 1}"
        return HostRecord(
            name,
            f"vllm-lab-{self.record.token}-{name}",
            {one.role: networks.host_address(one, index) for one in self.record.networks},
        )

    def _start(self, host: HostRecord, sources: Sources) -> None:
        found = hosts.inspect_host(host)
        if found is None:
            arguments = hosts.create_arguments(self.record, host, self.cache, sources)
            host.id = podman(*arguments)
        if found is None or found["State"]["Status"] in ("created", "configured"):
            hosts.seed(self.record, host, self.paths, self.cache)
        if found is None or not found["State"]["Running"]:
            podman("start", host.container)
        elif not host.id:
            host.id = found["Id"]

    def _pin(self) -> None:
        write_known_hosts(
            self.paths.known_hosts,
            [
                (
                    host.addresses.values(),
                    ensure_key(hosts.host_key(self.paths, host), host.name),
                )
                for host in self.record.hosts
            ],
        )

    def _save(self) -> None:
        save(self.record, self.paths.record)

    @property
    def cache(self) -> SharedCache:
        """The caches that this lab's hosts share with this machine."""
        return SharedCache(Path(self.record.cache), machine_pip_cache())

    @property
    def inventory(self) -> Path:
        """The inventory directory, for `ansible-playbook -i`."""
        return self.paths.inventory

    def sources(self) -> Sources:
        """Return how hosts get packages, found out on this machine."""
        return discover(",".join(network.subnet for network in self.record.networks))

    def address(self, host: str, network: str | None = None) -> str:
        """Return a host's address, on the network for data unless another is named."""
        role = network or self.record.data_network.role
        self.record.network(role)
        return self.record.host(host).addresses[role]

    def run(
        self, host: str, argv: Sequence[str], *, check: bool = True, timeout: float = 600
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on a host over SSH, as root."""
        address = self.address(host, self.record.networks[0].role)
        options = ssh_options(self.paths.key, self.paths.known_hosts)
        command = ["ssh", *options, f"root@{address}", "--", shlex.join(argv)]
        return run(command, check=check, timeout=timeout)

    def link(self, host: str, peer: str = "", network: str = "") -> Link:
        """Return one host's link or, with a peer, the path between both."""
        return Link(self, host, peer, network)

    def cut(self, host: str, peer: str = "", network: str = "") -> None:
        """Cut one host off, or two hosts from each other."""
        self.link(host, peer, network).cut()

    def status(self) -> dict[str, str]:
        """Return each host's container state: running, exited, missing."""
        found = {host.name: hosts.inspect_host(host) for host in self.record.hosts}
        return {name: one["State"]["Status"] if one else "missing" for name, one in found.items()}

    def down(self) -> None:
        """Remove exactly what this lab made; images and caches stay for the next one."""
        require_root()
        with exclusive(self.paths.lock):
            clear_all(self.record)
            with ThreadPoolExecutor() as pool:
                list(pool.map(hosts.remove_host, self.record.hosts))
            for network in self.record.networks:
                networks.remove_network(network)
            if self.record.cache:
                self.cache.remove_hosts(self.record.token)
            remove_inventory(self.record)
            shutil.rmtree(self.paths.state)
        self.paths.lock.unlink(missing_ok=True)
