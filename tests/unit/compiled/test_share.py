"""The action, played for real: what one host has compiled is kept and given to the next one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

ENGINE = {
    "name": "chat",
    "arguments": ["--max-model-len", "1024"],
    "layout": {"tensor": 1, "pipeline": 1},
    "model": "smollm2",
    "model_source": "package",
}
CODE = "vllm/torch_compile_cache/1/rank_0_0/code.py"


class Site:
    """Hosts that are all this machine, each with a cluster's directory of its own."""

    def __init__(self, play: Any, directory: Path) -> None:
        self.play, self.directory = play, directory

    def cache(self, host: str) -> Path:
        return self.directory / "hosts" / host / "engines/chat/cache"

    def compiles(self, host: str) -> None:
        path = self.cache(host) / CODE
        path.parent.mkdir(parents=True)
        path.write_text("compiled")

    def run(
        self,
        state: str,
        host: str,
        *flags: str,
        cluster: str = "r1",
        remote_code: bool = False,
        **changed: Any,
    ) -> Any:
        facts = {"architecture": "x86_64", "accelerator_name": "", "service_user": ""}
        task = {
            "state": state,
            "engine": {**ENGINE, **changed},
            "host": {**facts, "cluster_dir": str(self.directory / "hosts" / host)},
            "cluster": cluster,
            "remote_code": remote_code,
            "fingerprint": "one",
            "kept_dir": str(self.directory / "kept"),
        }
        tasks = [{"name": "share", "engine_compiled_share": task}]
        ran = self.play(tasks=tasks, hosts={host: {}}, flags=flags)
        found = ran.tasks["share"][host]
        assert not found.get("failed"), found
        return found


@pytest.fixture
def site(play: Any, tmp_path: Path) -> Site:
    return Site(play, tmp_path)


def test_the_next_host_gets_what_the_first_one_compiled(site: Site) -> None:
    site.compiles("one")
    assert not site.run("kept", "one")["changed"]
    assert site.run("taken", "two", "--check")["changed"]
    assert not site.cache("two").exists()
    assert site.run("taken", "two")["changed"]
    assert (site.cache("two") / CODE).read_text() == "compiled"
    assert not site.run("taken", "two")["changed"]


def test_nothing_is_kept_of_an_engine_that_compiles_nothing(site: Site) -> None:
    site.cache("one").mkdir(parents=True)
    assert not site.run("kept", "one")["changed"]
    assert not list(site.directory.glob("kept/*"))


def test_another_engine_or_a_damaged_archive_is_not_taken(site: Site) -> None:
    site.compiles("one")
    site.run("kept", "one")
    assert not site.run("taken", "two", arguments=["--max-model-len", "512"])["changed"]
    (archive,) = site.directory.glob("kept/*/compiled.tar.gz")
    archive.write_bytes(b"damaged")
    assert not site.run("taken", "two")["changed"]
    # And it is brought anew.
    site.run("kept", "one")
    assert site.run("taken", "two")["changed"]
    (record,) = site.directory.glob("kept/*/compiled.json")
    assert json.loads(record.read_text())["files"] == 1


def test_what_cannot_be_kept_is_a_warning_and_no_failure(site: Site) -> None:
    site.compiles("one")
    (site.directory / "kept").write_text("a file in the way")
    (warning,) = site.run("kept", "one")["warnings"]
    assert "is not shared between hosts" in str(warning)
    assert str(site.directory / "kept") in str(warning)


def test_another_cluster_takes_none_of_it(site: Site) -> None:
    site.compiles("one")
    site.run("kept", "one")
    assert not site.run("taken", "two", cluster="r2")["changed"]
    assert site.run("taken", "two")["changed"]


@pytest.mark.parametrize("argument", ["--trust-remote-code", "--trust_remote"])
def test_what_a_models_own_code_may_have_left_stays_where_it_is(site: Site, argument: str) -> None:
    site.compiles("one")
    site.run("kept", "one", arguments=[argument])
    assert not list(site.directory.glob("kept/*"))
    site.run("kept", "one", arguments=[argument], remote_code=True)
    # Kept because it was allowed; taken where it is, too.
    assert not site.run("taken", "two", arguments=[argument])["changed"]
    assert site.run("taken", "two", arguments=[argument], remote_code=True)["changed"]
