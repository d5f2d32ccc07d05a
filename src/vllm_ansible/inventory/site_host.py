"""Resolve what an inventory leaves to be found: the facts every role reads as site_host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from vllm_ansible.accelerators.platform import has_devices, platform
from vllm_ansible.inventory.data_plane import choose_addresses
from vllm_ansible.inventory.look import Address, HostLook
from vllm_ansible.node.system.host import PLACES
from vllm_ansible.problem import PlanError, Problem

SUPPORTED = {
    "ubuntu": ("22.04", "24.04"),
    "debian": ("12", "13"),
    "rocky": ("9",),
    "rhel": ("9",),
}
ARCHITECTURES = ("x86_64", "aarch64")
# A unix socket's path has 107 bytes; Ray adds up to 66 below <run_dir>/<engine index>.
RUN_DIR_BYTES = 107 - 66 - len("/127")


@dataclass(frozen=True)
class Wishes:
    """What the inventory says about one host."""

    cluster_name: str
    accelerator: str = "auto"
    accelerator_count: int = 0
    supervisor: str = "auto"
    privileges: str = "auto"
    data_plane_network: str = ""
    data_plane_interface: str = ""
    service_user: str = ""
    cluster_dir: str = ""
    models_dir: str = ""
    system_efa: str = "auto"
    # By the role of a driver: its mode; and, not of the inventory, whether it was mended: the role
    # says so, and the host is looked at again.
    driver_modes: Mapping[str, str] = field(default_factory=dict)
    driver_mended: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SiteHost:
    """One host with nothing left to find out."""

    name: str
    accelerator: str
    accelerator_count: int
    supervisor: str
    privileges: str
    become: bool
    uid: int
    address: str
    interface: str
    service_user: str
    cluster_dir: str
    models_dir: str
    run_dir: str
    boot_id: str
    distribution: str
    distribution_version: str
    architecture: str
    python: str
    memory_bytes: int
    disk_free_bytes: int
    cores: int
    accelerator_name: str = ""
    accelerator_memory_bytes: int = 0
    # Empty where they are 0 and on.
    accelerator_indices: tuple[int, ...] = ()


def resolve_hosts(
    looks: Sequence[HostLook],
    wishes: Mapping[str, Wishes],
    local: bool,
    driver_follows: bool = False,
    accelerators_judged: bool = True,
) -> dict[str, dict[str, Any]]:
    """Return site_host of every host, or refuse with all that is wrong with any of them.

    driver_follows: this run is still to judge the drivers, which tells more of a silent device.
    accelerators_judged: false where nothing is to be started, as for those who stop and look.
    """
    problems = [problem for look in looks for problem in _problems(look, wishes[look.name])]
    if accelerators_judged:
        found = [_accelerators(look, wishes[look.name], driver_follows) for look in looks]
        problems += [problem for problem in found if problem]
    addresses: dict[str, Address] = {}
    networks = {wish.data_plane_network for wish in wishes.values()} - {""}
    interfaces = {look.name: wishes[look.name].data_plane_interface for look in looks}
    try:
        addresses = choose_addresses(looks, "".join(sorted(networks)[:1]), interfaces, local)
    except PlanError as error:
        problems += error.problems
    if problems:
        raise PlanError(problems)
    return {
        look.name: asdict(_resolve(look, wishes[look.name], addresses[look.name])) for look in looks
    }


def _resolve(look: HostLook, wish: Wishes, address: Address) -> SiteHost:
    """Return the facts of a host that passed its checks."""
    privileges = _privileges(look, wish)
    root = privileges == "root"
    supervisor = wish.supervisor
    if supervisor == "auto":
        supervisor = "systemd" if root and look.pid1 == "systemd" else "supervisord"
    home = look.home.rstrip("/")
    base = _expand(PLACES[privileges], home)
    cluster_dir = _expand(wish.cluster_dir, home) or f"{base}/{wish.cluster_name}"
    accelerator = look.accelerator if wish.accelerator == "auto" else wish.accelerator
    return SiteHost(
        name=look.name,
        accelerator=accelerator,
        accelerator_count=_count(look, wish, accelerator),
        supervisor=supervisor,
        privileges=privileges,
        become=root and look.uid != 0,
        uid=look.uid,
        address=address.address,
        interface=address.interface,
        service_user=wish.service_user or (f"vllm-{wish.cluster_name}" if root else look.user),
        cluster_dir=cluster_dir,
        models_dir=_expand(wish.models_dir, home) or f"{cluster_dir}/models",
        run_dir=_run_dir(look, wish),
        boot_id=look.boot_id,
        distribution=look.distribution,
        distribution_version=look.distribution_version,
        architecture=look.architecture,
        python=look.python,
        memory_bytes=look.memory_bytes,
        disk_free_bytes=look.disk_free[privileges],
        cores=look.cores,
        accelerator_name=look.accelerator_name if accelerator == look.accelerator else "",
        accelerator_memory_bytes=(
            look.accelerator_memory_bytes if accelerator == look.accelerator else 0
        ),
        accelerator_indices=look.accelerator_indices if accelerator == look.accelerator else (),
    )


def _privileges(look: HostLook, wish: Wishes) -> str:
    """Return whether root is used on this host."""
    if wish.privileges != "auto":
        return wish.privileges
    return "root" if look.uid == 0 or look.sudo else "none"


def _run_dir(look: HostLook, wish: Wishes) -> str:
    """Return the short directory for sockets."""
    if _privileges(look, wish) == "root":
        return f"/run/vllm-{wish.cluster_name}"
    return unprivileged_run_dir(wish.cluster_name, look.uid)


def unprivileged_run_dir(cluster: str, uid: int) -> str:
    """Return the directory for sockets of a user who is not root."""
    # Short on purpose, private by mode 0700 and by the user's number.
    return f"/tmp/vllm-{cluster}-{uid}"  # noqa: S108 the reason is above


def supervisor_dir(host: Mapping[str, Any]) -> str:
    """Return the directory of supervisord's socket, whose owner is the user who runs it.

    With root, run_dir belongs to the service, and root must not trust what lies in it.
    """
    run_dir = str(host["run_dir"])
    return f"{run_dir}-supervisord" if host["privileges"] == "root" else run_dir


def _count(look: HostLook, wish: Wishes, accelerator: str) -> int:
    """Return how many accelerators, or ranks on a CPU, this host offers."""
    if not has_devices(accelerator):
        return wish.accelerator_count or 1
    return wish.accelerator_count or look.accelerator_count


def _expand(path: str, home: str) -> str:
    """Return a path with the login user's home in place of a leading tilde."""
    path = path.rstrip("/")
    return f"{home}{path[1:]}" if path == "~" or path.startswith("~/") else path


def _problems(look: HostLook, wish: Wishes) -> list[Problem]:
    """Return what makes a host unfit, or contradicts its inventory."""
    checks = (_system, _rights, _supervisor, _socket_room)
    found = [check(look, wish) for check in checks]
    return [problem for problem in found if problem]


def _system(look: HostLook, wish: Wishes) -> Problem | None:
    """Refuse a distribution or architecture that was never tried."""
    del wish
    version = look.distribution_version
    release = version if look.distribution == "ubuntu" else version.split(".")[0]
    known = release in SUPPORTED.get(look.distribution, ())
    if known and look.architecture in ARCHITECTURES:
        return None
    names = ", ".join(f"{name} {' and '.join(SUPPORTED[name])}" for name in SUPPORTED)
    found = f"{look.distribution or 'an unknown system'} {version} on {look.architecture}"
    return Problem(
        f"{look.name} runs {found}; supported are {names} on {' and '.join(ARCHITECTURES)}",
        expected=f"{names} on {' or '.join(ARCHITECTURES)}",
        found=found,
        where=look.name,
        fix="install a supported system or take the host out of the group gpu",
    )


def _rights(look: HostLook, wish: Wishes) -> Problem | None:
    """Refuse a promise of root that the login does not keep."""
    if wish.privileges != "root" or look.uid == 0 or look.sudo:
        return None
    return Problem(
        f"{look.name} has no root: {look.user} is not root and has no sudo without a password",
        expected="privileges: root holds on the host",
        found=f"user {look.user}, uid {look.uid}, no sudo",
        where=f"{look.name} privileges",
        fix="set privileges: none, log in as root, or let the user use sudo without a password",
    )


def _supervisor(look: HostLook, wish: Wishes) -> Problem | None:
    """Refuse systemd where it does not run or root is not at hand."""
    if wish.supervisor != "systemd":
        return None
    if look.pid1 == "systemd" and _privileges(look, wish) == "root":
        return None
    return Problem(
        f"{look.name} cannot use systemd: its first process is {look.pid1} and privileges are "
        f"{_privileges(look, wish)}",
        expected="systemd as PID 1, and root",
        found=f"PID 1 {look.pid1}, privileges {_privileges(look, wish)}",
        where=f"{look.name} supervisor",
        fix="set supervisor: supervisord",
    )


def _accelerators(look: HostLook, wish: Wishes, driver_follows: bool) -> Problem | None:
    """Refuse accelerators that are declared but not there, or there but silent.

    A declared count that answers accepts that the others are silent.
    """
    wanted = look.accelerator if wish.accelerator == "auto" else wish.accelerator
    if not has_devices(wanted):
        return None
    found = look.accelerator_count if look.accelerator == wanted else 0
    on_bus = look.accelerators_on_the_bus if look.accelerator == wanted else 0
    silent = max(0, on_bus - found)
    if found and found >= (wish.accelerator_count or found + silent):
        return None
    if silent and _comes(wish, wanted, driver_follows):
        # Installing the driver, or saying what ails it, is what this run is for.
        return None
    told = f"; {silent} of {on_bus} on the PCI bus do not answer" if silent else ""
    fix = "correct accelerator or accelerator_count"
    if silent and not found:
        fix = "install the driver"
        if role := platform(wanted).driver_role:
            fix += f", or set {role}_mode: manage"
    elif silent:
        fix = (
            "read `dmesg` of the host and bring the silent device back, or run without it: "
            f"set accelerator_count: {found} for {look.name}"
        )
    return Problem(
        f"{look.name} has {found} usable {wanted} accelerators{told}",
        expected=f"at least {wish.accelerator_count or on_bus or 1} {wanted}",
        found=f"{found} usable, {on_bus} on the PCI bus",
        where=f"{look.name} accelerator",
        fix=fix,
    )


def _comes(wish: Wishes, accelerator: str, driver_follows: bool) -> bool:
    """Tell whether this run is still to bring the driver of these accelerators, or to judge it."""
    kind = platform(accelerator)
    if not kind.driver_role:
        return False
    mode = wish.driver_modes.get(kind.driver_role, "auto")
    judged = driver_follows and kind.judged_by_role and mode != "skip"
    return (mode == "manage" or judged) and not wish.driver_mended.get(kind.driver_role)


def _socket_room(look: HostLook, wish: Wishes) -> Problem | None:
    """Refuse a directory for sockets under which Ray's would not fit."""
    path = _run_dir(look, wish)
    if len(path) <= RUN_DIR_BYTES:
        return None
    return Problem(
        f"{look.name} would keep sockets under {path}, {len(path)} characters long",
        expected=f"at most {RUN_DIR_BYTES} characters",
        found=f"{len(path)} characters",
        where=f"{look.name} cluster_name",
        fix="choose a shorter cluster_name",
    )
