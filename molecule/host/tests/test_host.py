"""A prepared host has what serving needs, and lets nobody else read the cluster's keys."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from testinfra.host import Host

STATE = Path(os.environ["MOLECULE_PROJECT_DIRECTORY"]) / "state" / "molecule"
SECRETS = ("api_key", "ray_token")


def test_the_engines_libraries_and_tools_are_installed(host: Host) -> None:
    for package in ("libnuma1", "python3-venv", "python3-dev", "gcc"):
        assert host.package(package).is_installed
    assert "libnuma.so.1" in host.check_output("ldconfig -p")


def test_the_service_user_can_own_files_and_nothing_more(host: Host, cluster_dir: str) -> None:
    user = host.user("vllm-molecule")
    assert user.exists
    assert user.uid < 1000
    assert user.shell == "/usr/sbin/nologin"
    assert user.home == cluster_dir
    assert user.groups == ["vllm-molecule"]
    assert host.run("runuser -u vllm-molecule -- sudo -n true").rc != 0


def test_the_service_cannot_write_to_what_it_or_root_runs(host: Host, cluster_dir: str) -> None:
    modes = {
        **dict.fromkeys(("", "engines", "environments", "evidence"), "root 750"),
        **dict.fromkeys(("logs", "models", "processes", "tasks"), "root 750"),
        "secrets": "root 750",
        "tools": "root 755",
    }
    paths = " ".join(f"{cluster_dir}/{name}" for name in modes)
    said = host.check_output(f"stat --format '%U %a' {paths}").splitlines()
    assert dict(zip(modes, said, strict=True)) == modes


def test_sockets_and_secrets_lie_where_only_the_service_can_look(
    host: Host, owned: Callable[[str, str, int], None], cluster_dir: str
) -> None:
    owned("/run/vllm-molecule", "vllm-molecule", 0o700)
    for name in SECRETS:
        path = f"{cluster_dir}/secrets/{name}"
        owned(path, "vllm-molecule", 0o600)
        assert host.run("runuser -u vllm-molecule -- cat %s", path).rc == 0
        refused = host.run("runuser -u nobody -- cat %s", path)
        assert "Permission denied" in refused.stderr


def test_every_host_has_the_keys_of_the_controller(host: Host, cluster_dir: str) -> None:
    digests = set()
    assert STATE.stat().st_mode & 0o077 == 0
    for name in SECRETS:
        here = STATE / name
        assert here.stat().st_mode & 0o077 == 0
        secret = here.read_text().strip()
        assert len(secret) >= 32
        there = host.file(f"{cluster_dir}/secrets/{name}").content_string.strip()
        assert there == secret
        digests.add(hashlib.sha256(secret.encode()).digest())
    assert len(digests) == len(SECRETS), "one key must not open two doors"


def test_pip_has_installed_uv_and_uv_the_rest(host: Host, cluster_dir: str) -> None:
    site = f"{cluster_dir}/tools/lib/python3*/site-packages"
    said = host.check_output(f"cat {site}/uv-*/INSTALLER {site}/boto3-*/INSTALLER")
    assert said.split() == ["pip", "uv"]


def test_the_tools_run(host: Host, cluster_dir: str) -> None:
    assert host.check_output(f"{cluster_dir}/tools/bin/uv --version").startswith("uv ")
    said = host.check_output(
        f"{cluster_dir}/tools/bin/python -c 'import supervisor.options as o; print(o.VERSION)'"
    )
    locked = Path(os.environ["MOLECULE_PROJECT_DIRECTORY"]) / "requirements" / "tools.txt"
    assert f"supervisor=={said} " in locked.read_text()


def test_the_run_let_go_of_the_cluster(host: Host, cluster_dir: str) -> None:
    assert not host.file(f"{cluster_dir}/lock.json").exists
