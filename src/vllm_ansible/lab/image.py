"""Build the node image from Debian packages, once for each recipe."""

import hashlib
import json
import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from .commands import LabError, podman, run

SUITE = "bookworm"
PACKAGES = (
    "ca-certificates",
    "dbus",
    "gcc",
    "iproute2",
    "iputils-ping",
    "libc6-dev",
    "libnuma1",
    "openssh-server",
    "procps",
    "python3",
    "python3-dev",
    "python3-venv",
    "sudo",
    "systemd",
    "systemd-sysv",
)
# Hosts share this machine's kernel: its settings are not theirs to change at boot.
# A getty has no console to open, and every host gets its own keys from the lab.
SETUP = (
    "ln -sf /dev/null $1/etc/systemd/system/systemd-sysctl.service",
    "ln -sf /dev/null $1/etc/systemd/system/getty.target",
    "rm -f $1/etc/ssh/ssh_host_*",
    "rm -f $1/etc/hostname $1/etc/resolv.conf",
    # Empty, each host gets its own; missing, systemd asks the questions of a first boot.
    "truncate --size 0 $1/etc/machine-id",
    "install -d -m 0700 $1/root/.ssh",
)
Progress = Callable[[str], None]


def recipe_digest(
    suite: str, packages: Sequence[str], setup: Sequence[str], sources: Sequence[str]
) -> str:
    """Name an image by what it is made of."""
    recipe = json.dumps([suite, list(packages), list(setup), list(sources)])
    return hashlib.sha256(recipe.encode()).hexdigest()[:12]


def parse_sources(text: str, suite: str) -> list[str]:
    """Turn `apt-get indextargets` lines into source lines of one Debian suite."""
    wanted = re.compile(rf"{re.escape(suite)}(-updates|-security)?")
    lines = []
    for line in text.splitlines():
        origin, uri, release, component = line.split("|")
        # Origin stays a placeholder where apt's lists were never downloaded.
        if origin in ("Debian", "$(ORIGIN)") and wanted.fullmatch(release):
            lines.append(f"deb {uri} {release} {component}")
    return list(dict.fromkeys(lines))


def debian_sources(suite: str = SUITE) -> list[str]:
    """Return this machine's own sources of the suite; none means mmdebstrap's default."""
    fields = "$(ORIGIN)|$(REPO_URI)|$(RELEASE)|$(COMPONENT)"
    found = run(
        ["apt-get", "indextargets", "--format", fields, "Created-By: Packages"], check=False
    )
    return parse_sources(found.stdout, suite) if found.returncode == 0 else []


def apt_proxies() -> list[str]:
    """Return this machine's apt proxy settings as apt.conf lines."""
    found = run(["apt-config", "dump", "Acquire"], check=False)
    return re.findall(r'^Acquire::https?::Proxy .*";$', found.stdout, re.MULTILINE)


def bootstrap(
    target: Path,
    packages: Sequence[str],
    setup: Sequence[str],
    sources: Sequence[str],
    base: str = "",
) -> None:
    """Make a Debian root file system as a tar archive, from nothing or from another one."""
    argv = ["mmdebstrap", "--mode=root", "--quiet", "--dpkgopt=path-exclude=/usr/share/doc/*"]
    if base:
        # Files may have capabilities, as ping has; mmdebstrap has made /dev already.
        tar = "tar --numeric-owner --xattrs --xattrs-include='*' --exclude=./dev"
        argv += ["--variant=custom", f'--setup-hook={tar} -C {base} -c . | {tar} -C "$1" -x']
    else:
        argv += ["--variant=apt"]
    argv += [f"--include={','.join(packages)}"] if packages else []
    argv += [f"--aptopt={line}" for line in apt_proxies()]
    argv += [f"--customize-hook={line}" for line in setup]
    run([*argv, SUITE, str(target), *sources], timeout=1800)


def image_exists(image: str) -> bool:
    """Tell whether podman has an image of that exact name."""
    return podman("images", "--quiet", "--filter", f"reference={image}") != ""


def ensure_image(
    progress: Progress, more_packages: Sequence[str] = (), more_setup: Sequence[str] = ()
) -> str:
    """Return the node image's name, building it where this recipe was never built.

    One with more than every host has is built on theirs.
    """
    sources = debian_sources()
    packages, setup = (*PACKAGES, *more_packages), (*SETUP, *more_setup)
    image = f"localhost/vllm-ansible-node:{recipe_digest(SUITE, packages, setup, sources)}"
    if image_exists(image):
        return image
    base = ensure_image(progress) if more_packages or more_setup else ""
    progress(f"building {image} from Debian packages (once, about a minute)")
    with tempfile.TemporaryDirectory(prefix="vllm-lab-image-") as directory:
        archive = Path(directory) / "root.tar"
        if base:
            try:
                mounted = podman("image", "mount", base)
                bootstrap(archive, more_packages, setup, sources, mounted)
            finally:
                podman("image", "unmount", base)
        else:
            bootstrap(archive, packages, setup, sources)
        podman("import", str(archive), image)
    if not image_exists(image):
        raise LabError(f"podman imported {image} but does not list it; see `podman images`.")
    return image
