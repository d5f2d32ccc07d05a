"""An image is pulled from a real registry, which wants a password; what is wrong is told."""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.ports import free_port
from vllm_ansible.node.build_command import BuildError
from vllm_ansible.node.image import install
from vllm_ansible.node.image.tool import Tool

from .conftest import KIND, Report, containers_tool

SERVER = shutil.which("docker-registry")
CONFIGURATION = """\
version: 0.1
log: {{accesslog: {{disabled: true}}}}
storage: {{filesystem: {{rootdirectory: {place}/images}}}}
http: {{addr: {address}}}
# There is none yet: the server makes one and says the password.
auth: {{htpasswd: {{realm: test, path: {place}/htpasswd}}}}
"""


@dataclass(frozen=True)
class Registry:
    """A registry on this machine that holds the small image."""

    address: str
    digest: str
    # podman with and without the password.
    known: Tool
    stranger: Tool

    def name(self, tag: str) -> str:
        return f"{self.address}/vllm{tag}"


def answers(address: str) -> bool:
    connection = http.client.HTTPConnection(address, timeout=2)
    try:
        connection.request("GET", "/v2/")
        return connection.getresponse().status == 401
    except OSError:
        return False
    finally:
        connection.close()


@pytest.fixture(scope="module")
def registry(
    tool: Tool, archive: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Registry]:
    if SERVER is None or KIND != "podman":
        pytest.skip("a registry needs docker-registry, and settings of its own podman")
    place = tmp_path_factory.mktemp("registry")
    address = f"127.0.0.1:{free_port()}"
    settings = place / "config.yml"
    settings.write_text(CONFIGURATION.format(place=place, address=address))
    log = place / "log"
    with log.open("w") as output:
        server = subprocess.Popen(
            [SERVER, "serve", str(settings)], stdout=output, stderr=subprocess.STDOUT
        )
    try:
        deadline = time.monotonic() + 120
        while not answers(address):
            assert server.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        yield filled(address, place, tool, archive, log.read_text())
    finally:
        server.terminate()
        server.wait(120)


def filled(address: str, place: Path, tool: Tool, archive: Path, said: str) -> Registry:
    """Push the small image, and forget it here."""
    told = re.search(r"password=(\S+) user=(\S+)", said)
    assert told, said
    login = base64.b64encode(f"{told[2]}:{told[1]}".encode()).decode()
    (place / "auth.json").write_text(json.dumps({"auths": {address: {"auth": login}}}))
    (place / "none.json").write_text("{}")
    # A registry of this machine has no certificate.
    plain = place / "registries.conf"
    plain.write_text(f'[[registry]]\nlocation = "{address}"\ninsecure = true\n')
    known, stranger = (
        replace(
            tool,
            environment={
                **tool.environment,
                "CONTAINERS_REGISTRIES_CONF": str(plain),
                "REGISTRY_AUTH_FILE": str(place / file),
            },
        )
        for file in ("auth.json", "none.json")
    )
    loaded = containers_tool("load", "--quiet", "--input", str(archive)).split()[-1]
    name = f"{address}/vllm:0.32.0"
    digest = place / "digest"
    try:
        push = [tool.path, "push", "--quiet", f"--digestfile={digest}", loaded, name]
        subprocess.run(push, env={**os.environ, **known.environment}, check=True)
    finally:
        containers_tool("rmi", "--force", loaded)
    return Registry(address, digest.read_text().strip(), known, stranger)


def asked(wanted: dict[str, Any], name: str) -> dict[str, Any]:
    return {**wanted, "name": name, "file": "", "sha256": ""}


def test_an_image_is_pulled_by_its_digest_and_proven_and_pulled_once(
    registry: Registry, wanted: dict[str, Any], report: Report, told: list[str]
) -> None:
    name = registry.name(f"@{registry.digest}")
    try:
        manifest = install.bring(asked(wanted, name), registry.known, report)
        assert manifest["versions"]["vllm"] == "0.32.0"
        assert any(text.startswith(f"podman pulls {name}") for text in told)
        told.clear()
        again = install.bring(asked(wanted, name), registry.known, report)
        assert again["fingerprint"] == manifest["fingerprint"]
        assert not [text for text in told if "pulls" in text]
    finally:
        containers_tool("rmi", "--force", name, check=False)


def test_who_is_not_logged_in_is_told_to(
    registry: Registry, wanted: dict[str, Any], report: Report
) -> None:
    with pytest.raises(BuildError, match="could not be pulled") as raised:
        install.bring(asked(wanted, registry.name(":0.32.0")), registry.stranger, report)
    assert f"podman login {registry.address}" in raised.value.details["fix"]
    assert "authentication required" in raised.value.details["found"]


def test_a_tag_that_the_registry_does_not_have_is_told(
    registry: Registry, wanted: dict[str, Any], report: Report
) -> None:
    with pytest.raises(BuildError, match="could not be pulled") as raised:
        install.bring(asked(wanted, registry.name(":0.99.0")), registry.known, report)
    assert "correct engine_image" in raised.value.details["fix"]


def test_a_registry_that_does_not_answer_is_told(
    registry: Registry, wanted: dict[str, Any], report: Report
) -> None:
    with socket.socket() as nobody:  # bound and not listening
        nobody.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        with pytest.raises(BuildError, match="could not be pulled") as raised:
            install.bring(asked(wanted, f"{address}/vllm:0.32.0"), registry.known, report)
    assert f"let each host reach {address}" in raised.value.details["fix"]
    assert "connection refused" in raised.value.details["found"]
