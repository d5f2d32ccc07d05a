"""Find out how this machine gets Python packages, so that lab hosts can do the same.

Nothing found here is written into the repository: it goes into the generated inventory.
"""

import ast
import os
import ssl
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from .commands import run

CA_BUNDLE = "/etc/ssl/vllm-lab-ca.pem"
PIP_SETTINGS = (
    "default-timeout",
    "extra-index-url",
    "find-links",
    "index-url",
    "no-index",
    "proxy",
    "retries",
    "timeout",
    "trusted-host",
)
UV_SETTINGS = (
    "UV_DEFAULT_INDEX",
    "UV_EXTRA_INDEX_URL",
    "UV_FIND_LINKS",
    "UV_HTTP_TIMEOUT",
    "UV_INDEX",
    "UV_INDEX_STRATEGY",
    "UV_INDEX_URL",
    "UV_INSECURE_HOST",
    "UV_OFFLINE",
)
PROXY_SETTINGS = ("http_proxy", "https_proxy", "all_proxy")


@dataclass(frozen=True)
class Sources:
    """Environment for installs on hosts, and the paths of this machine that it speaks of."""

    environment: dict[str, str] = field(default_factory=dict)
    directories: tuple[str, ...] = ()
    ca_bundle: str = ""


def parse_pip_config(text: str) -> dict[str, str]:
    """Read `pip config list`; the environment wins over files, as it does in pip."""
    settings: dict[str, str] = {}
    for line in text.splitlines():
        key, _, value = line.partition("=")
        section, _, name = key.strip().rpartition(".")
        if section in ("global", "install") or (section == ":env:" and name in PIP_SETTINGS):
            plain = " ".join(str(ast.literal_eval(value)).split())
            if section != ":env:":
                settings.setdefault(name, plain)
            else:
                settings[name] = plain
    return settings


def local_directory(location: str) -> str | None:
    """Return the directory that a find-links entry or an index address names, if it is local."""
    parts = urlsplit(location)
    if parts.scheme not in ("", "file"):
        return None
    path = Path(unquote(parts.path))
    # A `simple` index points at its files beside it.
    path = path.parent if path.name == "simple" else path
    return str(path) if path.is_dir() and path != Path("/") else None


def with_uv(pip: Mapping[str, str], machine: Mapping[str, str]) -> dict[str, str]:
    """Say in uv's words what pip was told, where uv was told nothing itself."""
    told = {name: machine[name] for name in UV_SETTINGS if machine.get(name)}
    if "find-links" in pip:
        told.setdefault("UV_FIND_LINKS", ",".join(pip["find-links"].split()))
    if not {"UV_DEFAULT_INDEX", "UV_INDEX_URL"} & told.keys() and "index-url" in pip:
        told["UV_DEFAULT_INDEX"] = pip["index-url"]
    if not {"UV_INDEX", "UV_EXTRA_INDEX_URL"} & told.keys() and "extra-index-url" in pip:
        told["UV_INDEX"] = pip["extra-index-url"]
        # pip takes the best version over all indexes; uv by default stops at the first index.
        told.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")
    return told


def proxies(machine: Mapping[str, str], direct: str) -> dict[str, str]:
    """Return this machine's proxy settings, with the lab's own networks exempt."""
    found: dict[str, str] = {}
    for name in PROXY_SETTINGS:
        value = machine.get(name) or machine.get(name.upper())
        if value:
            found |= {name: value, name.upper(): value}
    if found:
        exempt = machine.get("no_proxy") or machine.get("NO_PROXY") or ""
        value = ",".join(part for part in (exempt, direct) if part)
        found |= {"no_proxy": value, "NO_PROXY": value}
    return found


def pip_settings() -> dict[str, str]:
    """Ask pip for its configuration; a virtual environment made by uv has no pip of its own."""
    for python in (sys.executable, "/usr/bin/python3", "python3"):
        asked = run([python, "-m", "pip", "config", "list"], check=False)
        if asked.returncode == 0:
            return parse_pip_config(asked.stdout)
    return {
        name: os.environ[key]
        for name in PIP_SETTINGS
        if (key := f"PIP_{name.replace('-', '_').upper()}") in os.environ
    }


def ca_bundle(machine: Mapping[str, str], pip: Mapping[str, str]) -> str:
    """Return the certificates that this machine trusts for downloads."""
    default = ssl.get_default_verify_paths().cafile
    for path in (pip.get("cert"), machine.get("PIP_CERT"), machine.get("SSL_CERT_FILE"), default):
        if path and Path(path).is_file():
            return str(Path(path).resolve())
    return ""


def discover(direct: str) -> Sources:
    """Look at pip's configuration and the environment; `direct` are networks without a proxy."""
    pip = pip_settings()
    machine = dict(os.environ)
    environment = proxies(machine, direct)
    environment |= {
        f"PIP_{name.replace('-', '_').upper()}": pip[name] for name in PIP_SETTINGS if name in pip
    }
    told = with_uv(pip, machine)
    environment |= told
    bundle = ca_bundle(machine, pip)
    if bundle:
        for name in ("CURL_CA_BUNDLE", "PIP_CERT", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"):
            environment[name] = CA_BUNDLE
    places = " ".join([*pip.values(), *(value.replace(",", " ") for value in told.values())])
    directories = {
        directory
        for place in places.split()
        if place.startswith(("/", "file:")) and (directory := local_directory(place))
    }
    return Sources(environment, tuple(sorted(directories)), bundle)
