"""Everything about a host's driver that is not as it must be, in the order it is mended."""

from __future__ import annotations

from vllm_ansible.accelerators.platforms.nvidia import branch
from vllm_ansible.drivers import packages as names
from vllm_ansible.drivers.around import around
from vllm_ansible.drivers.difference import Difference, Look, Wanted
from vllm_ansible.drivers.mend import Mend
from vllm_ansible.drivers.repository import in_place
from vllm_ansible.drivers.state import version


def differences(look: Look, wanted: Wanted) -> list[Difference]:
    """Return what differs; nothing where the host has no NVIDIA device.

    Without `manage` only what keeps a host from serving counts. A newer branch than the one wanted
    is left alone: nothing is ever taken back.
    """
    if not look["present"]:
        return []
    found = [*_repository(look, wanted), *_broken(look), *_packages(look, wanted)]
    if not version(look):
        return found
    # What goes around a driver is known once that driver is there.
    changing = any(one.mend.pin for one in found)
    return found + _loaded(look) + ([] if changing else around(look, wanted))


def _repository(look: Look, wanted: Wanted) -> list[Difference]:
    if wanted.repository is None or in_place(wanted.repository, look["repository"]):
        return []
    return [
        Difference(
            "repository",
            "the repository of the driver",
            wanted.repository.url,
            ", ".join(look["repository"]) or "none",
            Mend(repository=True),
        )
    ]


def _broken(look: Look) -> list[Difference]:
    if not look["broken"]:
        return []
    return [
        Difference(
            "half-installed",
            "packages complete",
            "no interrupted installation",
            "half installed: " + ", ".join(look["broken"]),
            Mend(repair=True),
        )
    ]


def _packages(look: Look, wanted: Wanted) -> list[Difference]:
    """Return what the packages of the driver lack: all of them, the branch, the flavour, unity."""
    have, manager = version(look), look["manager"]
    headers = names.headers(manager, look["kernel"])
    module = look["module"]
    build = () if module["headers"] or module["built"] else tuple(headers)
    whole = Mend(
        pin=(names.pin(manager, str(wanted.branch)),),
        install=(*build, *wanted.packages),
        reboot=True,
    )
    if not have:
        return [
            Difference(
                "driver-missing",
                "the driver",
                f"branch {wanted.branch}, open kernel modules",
                f"none, for {len(look['devices'])} device(s)",
                whole,
            )
        ]
    found = []
    oldest = wanted.oldest or wanted.branch
    if branch(have) < oldest:
        found.append(Difference("branch-older", "the branch", f"{oldest} or newer", have, whole))
    if wanted.manage and module["flavour"] == "proprietary" and not _open_is_installed(look):
        found.append(Difference("flavour", "the kernel modules", "open", module["flavour"], whole))
    return found or _one_version(look, manager)


def _open_is_installed(look: Look) -> bool:
    return any("open" in name for name in names.driver_packages(look["packages"]))


def _one_version(look: Look, manager: str) -> list[Difference]:
    """Return a difference where packages of several drivers lie beside one another."""
    ours = names.core(look["packages"])
    packaged = names.packaged(look["packages"])
    odd = sorted(name for name, one in ours.items() if one != packaged)
    if not odd:
        return []
    return [
        Difference(
            "packages-differ",
            "one version of the driver's packages",
            packaged,
            ", ".join(f"{name} {ours[name]}" for name in odd),
            Mend(install=tuple(names.at_version(manager, name, packaged) for name in odd)),
        )
    ]


def _loaded(look: Look) -> list[Difference]:
    """Return how module, library and packages disagree, once for each cause."""
    module, library = look["module"], look["library"]["version"]
    packaged = names.packaged(look["packages"])
    found = []
    if module["nouveau"]:
        found.append(
            Difference(
                "nouveau", "the kernel module", "nvidia", "nouveau is loaded", Mend(reboot=True)
            )
        )
    if library and packaged and library != packaged:
        found.append(
            Difference(
                "library-replaced",
                "the library that programs load is the package's",
                packaged,
                f"{library} at {look['library']['path']}",
                Mend(reinstall=tuple(sorted(names.core(look["packages"])))),
            )
        )
    if not module["loaded"]:
        found += _not_loaded(look)
    elif library and library != module["loaded"]:
        found.append(
            Difference(
                "nvml-mismatch",
                "library and loaded kernel module of one version",
                f"{library}, the library's",
                f"{module['loaded']} is loaded",
                # A module does not change under those who use it; the next boot loads the new one.
                Mend(reboot=packaged in ("", library)),
            )
        )
    elif packaged and packaged != module["loaded"]:
        found.append(
            Difference(
                "reboot-pending",
                "the loaded kernel module is the installed one",
                packaged,
                f"{module['loaded']} is loaded",
                Mend(reboot=True),
            )
        )
    return found


def _not_loaded(look: Look) -> list[Difference]:
    if look["module"]["built"]:
        return [
            Difference(
                "module-not-loaded",
                "the kernel module is loaded",
                version(look),
                "installed, not loaded",
                Mend(reboot=True),
            )
        ]
    headers = tuple(names.headers(look["manager"], look["kernel"]))
    return [
        Difference(
            "module-not-built",
            f"a kernel module for kernel {look['kernel']}",
            version(look),
            "none" if look["module"]["headers"] else "none, and no headers to build it with",
            Mend(
                install=() if look["module"]["headers"] else headers,
                reinstall=tuple(
                    name
                    for name in names.core(look["packages"])
                    if names.MODULE_PACKAGE.match(name)
                ),
                reboot=True,
            ),
        )
    ]
