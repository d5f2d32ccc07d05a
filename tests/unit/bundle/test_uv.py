"""What real uv takes from a bundle where its cache has seen the same release on an index."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from vllm_ansible.bundle import start
from vllm_ansible.bundle.start import digest_of

from .conftest import Project, wheel

UV = Path(sys.executable).parent / "uv"
NAME = "four-1.0-py3-none-any.whl"


class Quiet(SimpleHTTPRequestHandler):
    """Serve a directory without a word."""

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def index(project: Project, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Serve an index that lists `four` 1.0, too, and has 0.9; return its address and 0.9's hash."""
    page = tmp_path / "web/four"
    page.mkdir(parents=True)
    older = NAME.replace("1.0", "0.9")
    digests = {NAME: digest_of(project.index / NAME), older: wheel(page, "four", version="0.9")}
    links = [f"<a href='{name}#sha256={digest}'>{name}</a>" for name, digest in digests.items()]
    (page / "index.html").write_text("\n".join(links))
    handler = partial(Quiet, directory=str(tmp_path / "web"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", digests[older]
        server.shutdown()


def test_a_release_that_the_cache_has_seen_on_an_index_comes_from_the_bundle(
    project: Project, index: tuple[str, str], tmp_path: Path
) -> None:
    address, older = index
    bundle = tmp_path / "there"
    for folder in start.WHEELS:
        (bundle / folder).mkdir(parents=True)
    shutil.copy(project.index / NAME, bundle / start.WHEELS[0])
    (bundle / start.SETTINGS[0]).write_bytes(start.SETTINGS[1])
    settings = {"UV_CACHE_DIR": str(tmp_path / "cache"), "HOME": str(tmp_path)}
    plain = {"PATH": os.environ["PATH"], **settings, "UV_DEFAULT_INDEX": address}

    lock = tmp_path / "lock.txt"
    command = [str(UV), "pip", "install", "--dry-run", "--python", sys.executable]
    command += ["--require-hashes", "-r", str(lock)]
    uv = partial(subprocess.run, command, capture_output=True, text=True, check=False)
    lock.write_text(f"four==0.9 --hash=sha256:{older}\n")
    seen = uv(env=plain)
    assert seen.returncode == 0, seen.stderr
    lock.write_text(f"four==1.0 --hash=sha256:{digest_of(project.index / NAME)}\n")
    offline = {**plain, **start.offline(bundle)}
    without = {name: offline[name] for name in offline if name != "UV_CONFIG_FILE"}
    assert uv(env=without).returncode != 0, "uv no longer prefers what it saw: uv.toml can go"
    found = uv(env=offline)
    assert found.returncode == 0, found.stderr
    assert "four==1.0" in found.stderr
