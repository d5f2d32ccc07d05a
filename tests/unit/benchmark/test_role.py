"""The role against a stand-in engine under a real supervisor: what it loads, keeps, says, hides."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2.nativetypes import NativeEnvironment

from tests import warm
from tests.ports import free_port
from tests.unit.conftest import called, fork

ROOT = Path(__file__).parents[3]
KEY = "sk-never-to-be-seen-4711"
LAUNCHER = f"#!{sys.executable}\n"
PLAY = [
    {
        "name": "Measure what is served",
        "hosts": "gpu",
        "gather_facts": False,
        "any_errors_fatal": True,
        "tags": ["benchmark"],
        "roles": ["benchmark"],
    }
]
RAMP = [
    {
        **{name: value for name, value in PLAY[0].items() if name != "roles"},
        "tags": ["ramp"],
        "tasks": [{"import_role": {"name": "benchmark", "tasks_from": "ramp"}}],
    }
]
SMALL = {"benchmark_ramp_users": [2], "benchmark_ramp_rounds": 1, "benchmark_usd_per_hour": 3.6}


class Site:
    """One host whose one engine is the stand-in, and the role that measures it."""

    def __init__(self, directory: Path, run_dir: str) -> None:
        self.directory = directory
        self.cluster_dir = directory / "cluster"
        self.count = directory / "count"
        self.key_file = self.cluster_dir / "secrets/api_key"
        self.kept = self.cluster_dir / "evidence/benchmark-chat.json"
        self.process = {
            "cluster": "stand-in",
            "cluster_dir": str(self.cluster_dir),
            "run_dir": run_dir,
            "supervisor": "supervisord",
            "supervisord_python": sys.executable,
            "name": "chat-serve",
            "engine": "chat",
        }
        port = free_port()
        for name in ("secrets", "evidence", "engines/chat/cache", "bin"):
            (self.cluster_dir / name).mkdir(parents=True)
        self.key_file.write_text(f"{KEY}\n")
        self.vllm = self.cluster_dir / "bin/vllm"
        self.vllm.write_text(LAUNCHER + Path(__file__).with_name("stand_in.py").read_text())
        self.vllm.chmod(0o755)
        model = directory / "model"
        model.mkdir()
        for name in ("tokenizer.json", "model.safetensors"):
            (model / name).write_text("{}")
        self.argv = [str(self.vllm), "serve", str(model), "--key", KEY, "--port", str(port)]
        self.plan = {
            "engines": [
                {
                    "name": "chat",
                    "served_name": "smollm2",
                    "hosts": ["here"],
                    "ports": {"api": port},
                    "reasons": [],
                }
            ]
        }
        host = {
            "ansible_connection": "local",
            "ansible_python_interpreter": warm.python(),
            "cluster_name": "stand-in",
            "site_host": {
                "name": "here",
                "address": "127.0.0.1",
                "cluster_dir": str(self.cluster_dir),
                "service_user": "",
                "privileges": "none",
            },
        }
        self.inventory = directory / "hosts.yml"
        self.inventory.write_text(yaml.safe_dump({"gpu": {"hosts": {"here": host}}}))
        self.playbook = directory / "play.yml"
        self.playbook.write_text(yaml.safe_dump(PLAY))
        self.ramp_playbook = directory / "ramp.yml"
        self.ramp_playbook.write_text(yaml.safe_dump(RAMP))

    def tell(self, **process: Any) -> None:
        """Start or stop the server."""
        done = fork(called("managed_process", {**self.process, **process}), None)
        assert not done.get("failed"), done

    def start(self) -> None:
        self.tell(argv=[*self.argv, "--count", str(self.count)])

    def _call(self, *words: str) -> subprocess.CompletedProcess[str]:
        variables = {
            **os.environ,
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "VLLM_ANSIBLE_RUNS_DIR": str(self.directory / "runs"),
            "no_proxy": "127.0.0.1",
        }
        return warm.play(words, Path.cwd(), variables, timeout=300)

    def measure(self, *options: str, **variables: Any) -> tuple[str, list[dict[str, Any]]]:
        """Run the role, and return its console and its record."""
        return self._play(self.playbook, *options, **variables)

    def climb(self, *options: str, **variables: Any) -> tuple[str, list[dict[str, Any]]]:
        """Run the ramp of the role, and return its console and its record."""
        return self._play(self.ramp_playbook, *options, **variables)

    def _play(
        self, playbook: Path, *options: str, **variables: Any
    ) -> tuple[str, list[dict[str, Any]]]:
        extra = json.dumps({"site_plan": self.plan, **variables})
        done = self._call("-i", str(self.inventory), "-e", extra, *options, str(playbook))
        events = (self.directory / "runs/latest/events.jsonl").read_text().splitlines()
        return done.stdout + done.stderr, [json.loads(line) for line in events]

    @property
    def requests(self) -> int:
        """How many requests the engine has answered."""
        return len(self.count.read_text().splitlines()) if self.count.exists() else 0


def only(events: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    found = [event for event in events if event["event"] == kind]
    assert len(found) == 1, found
    return found[0]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    # The path of a supervisor's socket has at most 107 bytes.
    run_dir = tempfile.mkdtemp(prefix="bm-")
    made = Site(tmp_path_factory.mktemp("benchmark"), run_dir)
    made.start()
    yield made
    made.tell(state="absent")
    shutil.rmtree(run_dir, ignore_errors=True)


@pytest.fixture(scope="module")
def first(site: Site) -> tuple[str, list[dict[str, Any]]]:
    """Return the first measurement, told in all detail."""
    return site.measure("-vvv")


def test_every_request_is_sent_and_the_figures_are_evidence(site: Site, first: Any) -> None:
    output, events = first
    evidence = only(events, "evidence")
    (figures,) = evidence["values"]["engines"]
    assert (figures["name"], figures["requests"], figures["failed"]) == ("chat", 8, 0)
    assert figures["ttft_ms_median"] == 12.3
    assert "tokens/s at 2 concurrent, 8 of 8 answered" in evidence["summary"], output
    assert json.loads(site.kept.read_text())["figures"] == figures


def test_the_key_stands_in_no_output_and_no_file_of_the_measurement(site: Site, first: Any) -> None:
    output, events = first
    # The stand-in's own server is told the key in its arguments; nothing else may know it.
    written = [*(site.cluster_dir / "tasks").rglob("*"), site.kept]
    texts = [path.read_text() for path in written if path.is_file()]
    assert len(texts) >= 3
    assert not [text for text in [*texts, output, json.dumps(events)] if KEY in text]


def test_a_serving_engine_is_not_loaded_again_until_asked(site: Site, first: Any) -> None:
    before = site.requests
    _, events = site.measure()
    assert (only(events, "run_end")["changed"], site.requests) == (0, before)
    assert only(events, "evidence")["values"] == only(first[1], "evidence")["values"]
    _, events = site.measure(benchmark_again=True)
    assert only(events, "run_end")["ok"]
    assert site.requests == before + 8


def test_check_mode_measures_nothing_and_says_so(site: Site, first: Any) -> None:
    before, kept = site.requests, site.kept.read_text()
    output, events = site.measure("--check", "-v", benchmark_requests=4)
    assert (only(events, "run_end")["changed"], site.requests) == (0, before)
    assert site.kept.read_text() == kept
    assert "check mode: chat is not measured: something else is asked of it" in output


def test_another_question_is_measured_and_once_more_if_the_engine_compiled(
    site: Site, first: Any
) -> None:
    before = site.requests
    site.count.with_name("compile").touch()
    output, events = site.measure(benchmark_requests=4)
    assert only(events, "run_end")["ok"], output
    (figures,) = only(events, "evidence")["values"]["engines"]
    assert (figures["requests"], figures["compiled"]) == (4, "")
    assert site.requests == before + 2 * 4


def test_a_client_on_its_own_host_is_judged_on_the_engine_s(
    site: Site, first: Any, tmp_path: Path
) -> None:
    there = tmp_path / "loader"
    for name in ("load/written", "tasks", "evidence", "bin"):
        (there / name).mkdir(parents=True)
    program = there / "bin/vllm"
    program.write_text(site.vllm.read_text())
    program.chmod(0o755)
    added = tmp_path / "loader.yml"
    added.write_text(
        site.inventory.read_text().replace("gpu:", "load:").replace("here:", "loader:")
    )
    given = {
        "benchmark_load_host": "loader",
        "benchmark_load": {
            "name": "loader",
            "cluster_dir": str(there),
            "program": str(program),
            "certificate": "",
            "service_user": "root",
            "user": "",
            "become": False,
        },
        "site_state_dir": str(tmp_path / "state"),
        "site_api_key_file": str(site.key_file),
    }
    before = site.requests
    output, events = site.measure("-vvv", "-i", str(added), benchmark_again=True, **given)
    assert only(events, "run_end")["ok"], output
    assert site.requests == before + 8
    (evidence,) = [one for one in events if one.get("gate") == "benchmark"]
    (figures,) = evidence["values"]["engines"]
    assert figures["generator"]["host"] == "loader"
    assert f"answered, load from loader to {figures['generator']['url']}" in evidence["summary"]
    assert json.loads((there / "tasks/benchmark-chat.json").read_text())["state"] == "done"
    # What it needs of the model, and no weights.
    brought = [one.name for one in (there / "load/tokenizer-chat").iterdir()]
    assert brought == ["tokenizer.json"]
    unpacked = [
        one["status"] for one in events if one.get("task") == "Put it on the host of the client"
    ]
    assert unpacked == ["changed"]
    # Nothing is left but what the next measurement needs, and the key in one file of its own.
    assert not (there / "load/written/benchmark.json").exists()
    assert not (site.cluster_dir / "evidence/benchmark-chat.result").exists()
    assert not (tmp_path / "state").exists() or not list((tmp_path / "state").iterdir())
    assert not (there / "load/brought").exists()
    holding = [one for one in there.rglob("*") if one.is_file() and KEY in one.read_text()]
    assert holding == [there / "secrets/benchmark_key"]
    assert KEY not in output + json.dumps(events)


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone becomes another user")
def test_a_tokenizer_is_read_with_the_rights_of_the_engine_s_user() -> None:
    """What root runs for it, though a file has become a link to what is root's since the look."""
    place = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        place.chmod(0o755)
        secret, blob, model = place / "shadow", place / "blob", place / "model"
        secret.write_text("secret")
        secret.chmod(0o600)
        blob.write_text("{}")
        model.mkdir()
        (model / "tokenizer.json").symlink_to(blob)

        def packed(most: int = 1 << 20) -> tuple[bool, str]:
            done = subprocess.run(packing(place, most), capture_output=True, check=False)
            # The engine's user can put nothing into it, before root brings it on and after.
            seen = (place / "packed.tar").stat()
            assert (seen.st_uid, seen.st_mode & 0o777) == (0, 0o600)
            assert seen.st_size <= most + 1
            if most < tarfile.BLOCKSIZE:
                return done.returncode == 0, done.stderr.decode().strip()
            with tarfile.open(place / "packed.tar") as archive:
                return done.returncode == 0, "".join(
                    archive.extractfile(one).read().decode()  # type: ignore[union-attr]
                    for one in archive
                    if one.isfile()
                )

        assert packed() == (True, "{}")
        assert packed(9) == (False, "the tokenizer has more than 9 bytes")
        (model / "tokenizer.json").unlink()
        (model / "tokenizer.json").symlink_to(secret)
        assert packed() == (False, "")
    finally:
        shutil.rmtree(place)


def packing(place: Path, most: int) -> list[str]:
    """Return what packs the tokenizer of an engine on a host with root, as the role has it."""
    fixed = yaml.safe_load((ROOT / "roles/benchmark/vars/main.yml").read_text())
    argv = (
        NativeEnvironment()
        .from_string(fixed["benchmark_pack"])
        .render(
            site_host={"privileges": "root", "service_user": "nobody"},
            benchmark_tokenizer=str(place / "packed.tar"),
            benchmark_tokenizer_bytes=most,
            benchmark_pack_script=fixed["benchmark_pack_script"],
            __benchmark_seen={"tokenizer": str(place / "model")},
        )
    )
    return [*argv, "tokenizer.json"]


@pytest.mark.parametrize("laid", ["link", "file", "pipe"])
def test_a_file_of_the_client_is_taken_without_following_links(tmp_path: Path, laid: str) -> None:
    """The command that root runs for it (roles/benchmark/tasks/bring.yml)."""
    secret, written = tmp_path / "shadow", tmp_path / "written"
    secret.write_text("secret")
    if laid == "link":
        written.symlink_to(secret)
    elif laid == "pipe":
        os.mkfifo(written)
    else:
        written.write_text("{}")
    (task,) = [
        one["ansible.builtin.command"]["argv"]
        for one in yaml.safe_load((ROOT / "roles/benchmark/tasks/bring.yml").read_text())
        if "ansible.builtin.command" in one
    ]
    argv = [
        one.replace("{{ __benchmark_from }}", str(written)).replace(
            "{{ benchmark_client.directory }}", str(tmp_path)
        )
        for one in task
    ]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
    taken = (tmp_path / "brought").read_text() if (tmp_path / "brought").exists() else ""
    assert (done.returncode == 0, taken) == (laid != "link", {"file": "{}"}.get(laid, "")), done


def test_a_wrong_key_fails_with_one_clear_error(site: Site, first: Any) -> None:
    site.key_file.write_text("another\n")
    _, events = site.measure(benchmark_again=True)
    site.key_file.write_text(f"{KEY}\n")
    failure = only(events, "failure")
    assert failure["msg"] == "chat answered 0 of 8 requests."
    assert failure["found"] == "8 failed, the first with: Unauthorized"
    assert "another key" in failure["cause"]
    assert "allow_disruption" in failure["fix"]
    assert "bench serve" in failure["command"]
    assert not site.kept.exists()


def test_a_server_that_does_not_listen_fails_with_one_clear_error(site: Site, first: Any) -> None:
    plan = json.loads(json.dumps(site.plan))
    plan["engines"][0]["ports"]["api"] = free_port()
    _, events = site.measure(site_plan=plan)
    failure = only(events, "failure")
    assert "Cannot connect to host" in failure["found"]
    assert failure["where"] == f"http://127.0.0.1:{plan['engines'][0]['ports']['api']}"
    assert failure["cause"] == "chat-serve ended or stopped listening"


def test_a_program_that_breaks_leaves_no_measurement_running(site: Site, first: Any) -> None:
    good = site.vllm.read_text()
    site.vllm.write_text(f"{LAUNCHER}raise SystemExit('no such option: --seed')\n")
    _, events = site.measure(benchmark_again=True)
    site.vllm.write_text(good)
    failure = only(events, "failure")
    assert "measurement of chat failed: exit status 1: no such option: --seed" in failure["msg"]
    status = json.loads((site.cluster_dir / "tasks/benchmark-chat.json").read_text())
    assert status["state"] == "failed"


def test_a_ramp_measures_each_point_once_and_leaves_its_files(site: Site, first: Any) -> None:
    before = site.requests
    output, events = site.climb(**SMALL)
    assert only(events, "run_end")["ok"], output
    # One step of 16 requests, and the prompts alone at the knee.
    assert site.requests == before + 2 * 16
    evidence = only(events, "evidence")
    (found,) = evidence["values"]["engines"]
    assert [one["step"] for one in found["steps"]] == [2]
    assert found["prompts_alone"]["step"] == found["knee"]
    rate = found["steps"][0]["figures"]["output_tokens_per_second"]["median"]
    alone = found["steps"][0]["cost"]["usd_per_million_output_tokens_alone"]
    # $3.6 an hour is a tenth of a cent a second.
    assert alone == pytest.approx(0.001 / rate * 1_000_000)
    directory = site.directory / "runs/latest"
    names = {path.name for path in directory.glob("ramp-*")}
    assert names == {"ramp-chat.json", "ramp-chat.csv", "ramp-chat.html"}
    assert json.loads((directory / "ramp-chat.json").read_text()) == found
    assert KEY not in output + json.dumps(events)
    _, events = site.climb(**SMALL)
    assert (only(events, "run_end")["changed"], site.requests) == (0, before + 32)
    assert only(events, "evidence")["values"]["engines"] == [found]


def test_a_server_that_does_not_run_is_not_asked(site: Site, first: Any) -> None:
    before = site.requests
    site.tell(state="stopped")
    _, climbed = site.climb(**SMALL)
    _, events = site.measure()
    site.start()
    failure = only(events, "failure")
    assert only(climbed, "failure")["msg"] == failure["msg"]
    assert failure["msg"] == "chat cannot be measured: chat-serve does not run on here"
    assert "stage serve" in failure["fix"]
    assert site.requests == before
