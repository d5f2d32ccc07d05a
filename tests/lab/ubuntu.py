"""An Ubuntu image for lab hosts, built once where this machine can reach Ubuntu's archive."""

from __future__ import annotations

import tempfile
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from vllm_ansible.lab.commands import podman, run
from vllm_ansible.lab.image import PACKAGES, SETUP, apt_proxies, image_exists, recipe_digest

SUITE = "noble"
ARCHIVE = "http://archive.ubuntu.com/ubuntu"
SOURCE = f"deb {ARCHIVE} {SUITE} main universe"
KEYRING = "usr/share/keyrings/ubuntu-archive-keyring.gpg"
# Debian's gcc and headers are for engines, which are not tried here.
LEAVE_OUT = {"gcc", "libc6-dev", "python3-dev", "python3-venv"}
INCLUDE = (*(one for one in PACKAGES if one not in LEAVE_OUT), "python3-apt", "gnupg", "curl")


def ubuntu_image() -> str:
    """Return the image's name; skips where it was never built and cannot be."""
    image = f"localhost/vllm-ansible-node:{SUITE}-{recipe_digest(SUITE, INCLUDE, SETUP, [SOURCE])}"
    if image_exists(image):
        return image
    try:
        urllib.request.urlopen(f"{ARCHIVE}/dists/{SUITE}/Release", timeout=20).close()  # noqa: S310 a constant address
    except (urllib.error.URLError, OSError) as error:
        pytest.skip(f"Ubuntu's archive cannot be reached from this machine: {error}")
    with tempfile.TemporaryDirectory(prefix="vllm-lab-ubuntu-") as directory:
        archive = Path(directory) / "root.tar"
        argv = ["mmdebstrap", "--mode=root", "--variant=apt", "--quiet"]
        argv += [f"--keyring={keyring(Path(directory))}", f"--include={','.join(INCLUDE)}"]
        argv += ["--dpkgopt=path-exclude=/usr/share/doc/*"]
        argv += [f"--aptopt={line}" for line in apt_proxies()]
        argv += [f"--customize-hook={line}" for line in SETUP]
        run([*argv, SUITE, str(archive), SOURCE], timeout=1800)
        podman("import", str(archive), image)
    return image


def keyring(directory: Path) -> Path:
    """Return the keys of Ubuntu's archive: this machine's, else those that Debian packages."""
    if (own := Path("/") / KEYRING).is_file():
        return own
    line = f"cd {directory} && apt-get download ubuntu-keyring && dpkg --extract ubuntu-*.deb ."
    run(["sh", "-c", line])
    return directory / KEYRING
