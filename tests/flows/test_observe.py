"""A real engine behind a real door, observed: quiet while all is well, and called by each harm."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.client
import json
import os
import re
import shutil
import signal
import ssl
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from .clone import MINUTE, Ran, wait_until
from .conftest import Site
from .processes import end_all

pytestmark = [pytest.mark.engine, pytest.mark.soak]
ROOT = Path(__file__).parents[2]
RULES, DASHBOARD = (ROOT / f"roles/observe/files/{one}" for one in ("rules.yml", "dashboard.json"))
HEALTHY = ROOT / "tests/unit/observe/data/healthy.json"
PLAY = "playbooks/observe.yml"
DOOR, PROMETHEUS, NODE, HOOK, PAGE = 9643, 9770, 9772, 9775, 9644
KEYS = {"alice": "observed-alice-4711", "bob": "observed-bob-4712"}
MODEL = "smollm2-135m-instruct"
ENGINE = {
    "name": "chat",
    "model": f"package:{MODEL}",
    "port": 8290,
    # Eight long answers are more than the cache holds.
    "vllm_args": {
        "max_model_len": 1024,
        "dtype": "float32",
        "enforce_eager": True,
        "kv_cache_memory_bytes": 1 << 26,
        "max_num_seqs": 8,
    },
    "probe": {"prompt": "What is the capital of France?", "expect": "Paris"},
}
# Of panels of what this machine has not: devices, a router before ranks, rented machines, alerts,
# limits of a plan.
EMPTY = re.compile(r"vllm_device|router|spend|ALERTS|prefix_cache|refusals|preemptions|vllm_limit")
ALWAYS = "AlertsArrive"


class Calls(BaseHTTPRequestHandler):
    """Whom Alertmanager calls."""

    names: set[str] = set()  # noqa: RUF012 - one receiver

    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers["Content-Length"]))
        self.names.update(one["labels"]["alertname"] for one in json.loads(text)["alerts"])
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


class Observed(Site):
    """One engine, a door, and what watches them."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, "obs")
        clients, receivers = directory / "clients.yml", directory / "alertmanager.yml"
        digests = {name: hashlib.sha256(key.encode()).hexdigest() for name, key in KEYS.items()}
        limits: dict[str, Any] = {"alice": {}, "bob": {"requests_per_minute": 5}}
        entries = {name: {"key_sha256": digests[name], **limits[name]} for name in KEYS}
        clients.write_text(yaml.safe_dump({"clients": entries}))
        clients.chmod(0o600)
        hook = {"name": "test", "webhook_configs": [{"url": f"http://127.0.0.1:{HOOK}/"}]}
        route = {"receiver": "test", "group_by": ["alertname"], "group_wait": "1s"}
        receivers.write_text(yaml.safe_dump({"route": route, "receivers": [hook]}))
        self.variables = {
            "cluster_name": "obs",
            "cluster_dir": str(self.cluster_dir),
            "accelerator": "cpu",
            "privileges": "none",
            "port_base": 28300,
            "vllm_reference_gib": 0,
            "door_clients_file": str(clients),
            "door_port": DOOR,
            "engines": [ENGINE],
            "load_page": True,
            "load_page_port": PAGE,
            "observe_mode": "run",
            "observe_port": PROMETHEUS,
            "observe_node_port": NODE,
            "observe_alertmanager_file": str(receivers),
        }
        self.inventory = self.clone.inventory("obs", self.hosts, **self.variables)

    def play(self, *arguments: str, playbook: str = PLAY) -> Ran:
        ran = self.run(*arguments, playbook=playbook)
        assert ran.status == 0, ran.output
        return ran

    def ask(self, path: str, port: int = PROMETHEUS) -> Any:
        """Return what Prometheus or Alertmanager answers."""
        key = (self.cluster_dir / "observe/secrets/key").read_text().strip()
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}")
        word = base64.b64encode(f"observe:{key}".encode()).decode()
        request.add_header("Authorization", f"Basic {word}")
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            return json.loads(answer.read())

    def page(self) -> dict[str, Any]:
        """Return what the load page gets to show of the cluster, with the key it makes itself."""
        (certificate,) = (self.cluster_dir / "load_page/tls").glob("*.crt")
        context = ssl.create_default_context(cafile=str(certificate))
        api_key = (self.cluster_dir / "secrets/api_key").read_text().strip()
        key = hashlib.sha256(f"observe {api_key}".encode()).hexdigest()
        request = urllib.request.Request(f"https://127.0.0.1:{PAGE}/cluster.json")
        word = base64.b64encode(f"observe:{key}".encode()).decode()
        request.add_header("Authorization", f"Basic {word}")
        with urllib.request.urlopen(request, timeout=60, context=context) as answer:  # noqa: S310
            found: dict[str, Any] = json.loads(answer.read())
            return found

    def shown(self, name: str, firing: bool) -> bool:
        """Tell whether the page shows that an alert fires, or that it has ended."""
        alerts = [one for one in self.page()["alerts"] if one["name"] == name]
        return any((one["ended"] is None) == firing for one in alerts)

    def query(self, expression: str) -> list[dict[str, Any]]:
        found = self.ask(f"/api/v1/query?query={urllib.parse.quote(expression)}")
        assert found["status"] == "success", expression
        result: list[dict[str, Any]] = found["data"]["result"]
        return result

    def firing(self) -> set[str]:
        """Return the names of the alerts that fire."""
        alerts = self.ask("/api/v1/alerts")["data"]["alerts"]
        return {one["labels"]["alertname"] for one in alerts if one["state"] == "firing"} - {ALWAYS}

    def called(self, *names: str, minutes: float = 10) -> None:
        """Wait until each of these alerts fires and somebody was called."""
        began = time.monotonic()
        for name in names:
            wait_until(lambda name=name: name in self.firing(), minutes * MINUTE, name)
            wait_until(lambda name=name: name in Calls.names, 2 * MINUTE, f"a call for {name}")
            print(f"{name} after {time.monotonic() - began:.0f} s", flush=True)

    def calm(self, *names: str, minutes: float = 10) -> None:
        """Wait until none of these fires any more."""
        wait_until(lambda: not self.firing() & set(names), minutes * MINUTE, f"calm of {names}")

    def complete(self, key: str, tokens: int, prompt: str = "Once upon a time") -> int:
        """Ask the door for an answer, and return its status."""
        (certificate,) = (self.cluster_dir / "door/tls").glob("*.crt")
        context = ssl.create_default_context(cafile=str(certificate))
        connection = http.client.HTTPSConnection("127.0.0.1", DOOR, timeout=1800, context=context)
        body = {"model": MODEL, "prompt": prompt, "max_tokens": tokens, "ignore_eos": True}
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        try:
            connection.request("POST", "/v1/completions", json.dumps(body), headers)
            answer = connection.getresponse()
            answer.read()
            return answer.status
        finally:
            connection.close()

    def pids(self, text: str) -> list[int]:
        """Return the processes of this cluster whose command line holds a text."""
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                command = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                inside = str(self.cluster_dir) in (place / "environ").read_bytes().decode("latin-1")
                if text in command and inside:
                    found.append(int(place.name))
        return found

    @contextlib.contextmanager
    def stopped(self, text: str) -> Iterator[None]:
        """Have processes of the cluster stand still."""
        pids = self.pids(text)
        assert pids, text
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def load(ask: Callable[[], Any], seconds_between: float, most: int) -> Iterator[None]:
    """Have users ask again and again, one more of them every so many seconds."""
    over = threading.Event()

    def user() -> None:
        while not over.is_set():
            with contextlib.suppress(OSError, http.client.HTTPException):
                ask()

    def add() -> None:
        for _ in range(most):
            threading.Thread(target=user, daemon=True).start()
            if over.wait(seconds_between):
                return

    threading.Thread(target=add, daemon=True).start()
    try:
        yield
    finally:
        over.set()


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Observed]:
    """Serve and observe; whoever works on these tests names a directory to keep it in."""
    chosen = os.environ.get("VLLM_ANSIBLE_FLOW_DIR")
    directory = (
        (Path(chosen) / "observe").resolve() if chosen else tmp_path_factory.mktemp("observe")
    )
    hook = ThreadingHTTPServer(("127.0.0.1", HOOK), Calls)
    threading.Thread(target=hook.serve_forever, daemon=True).start()
    made = Observed(directory)
    if not (chosen and (made.cluster_dir / "observe/secrets/key").exists()):
        made.play("--skip-tags", "verify,benchmark", playbook="site.yml")
    yield made
    hook.shutdown()
    if not chosen:
        end_all(made.cluster_dir)
        shutil.rmtree(made.cluster_dir, ignore_errors=True)
        shutil.rmtree(made.run_dir, ignore_errors=True)


def test_a_second_run_changes_nothing(observed: Observed) -> None:
    ran = observed.play()
    assert ran.changed == []
    assert ran.evidence("observe")[0]["values"]["targets"] >= 4


def test_a_healthy_engine_calls_nobody_and_every_panel_has_figures(observed: Observed) -> None:
    wait_until(lambda: not observed.firing(), 10 * MINUTE, "quiet")
    Calls.names.clear()
    seen: set[str] = set()
    with load(lambda: observed.complete(KEYS["alice"], 24), 5, 2):
        end = time.monotonic() + 6 * MINUTE
        while time.monotonic() < end:
            seen |= observed.firing()
            time.sleep(5)
    assert (seen, Calls.names - {ALWAYS}) == (set(), set())
    page = observed.page()
    (engine,), (host,) = page["engines"], page["hosts"]
    (rank,) = engine["ranks"]
    assert (page["problem"], page["door"], host["state"]) == ("", "answers", "answers")
    assert (rank["state"], page["spend"], host["in_use"]) == ("answers", None, [])
    assert rank["tokens"] > 0 and engine["first_token"] > 0
    # The planner knows nothing of an engine on processors.
    assert (engine["first_token_limit"], engine["inter_token_limit"]) == (None, None)
    alerts = observed.ask("/api/v2/alerts", PROMETHEUS + 1)
    assert [one["labels"]["alertname"] for one in alerts] == [ALWAYS]

    dashboard = json.loads(DASHBOARD.read_text())
    panels, empty = dashboard["panels"], []
    for variable in dashboard["templating"]["list"]:
        given = re.fullmatch(r"label_values\((.*), (\w+)\)", variable.get("definition", ""))
        if given:
            asked = re.sub(r"\$\w+", ".*", given[1])
            found = observed.query(f"count by ({given[2]}) ({asked})")
            assert [one["metric"][given[2]] for one in found], variable["name"]
    for panel in panels:
        for target in panel.get("targets", ()):
            asked = re.sub(r"\$\w+", ".*", target["expr"])
            if not observed.query(asked) and not EMPTY.search(asked):
                empty.append((panel["title"], asked))
    assert empty == []
    if os.environ.get("VLLM_ANSIBLE_KEEP_HEALTHY"):
        HEALTHY.write_text(recorded(observed, 5 * MINUTE))


def recorded(observed: Observed, seconds: int) -> str:
    """Return the last minutes of what the rules look at, as promtool reads it."""
    names = sorted(
        set(re.findall(r"\b(?:up|(?:vllm|node|haproxy)[:_]\w+)\b", RULES.read_text()))
        - {"vllm_ansible"}
    )
    end, step = int(time.time()), 15
    series = []
    for name in names:
        asked = urllib.parse.urlencode(
            {"query": name, "start": end - seconds, "end": end, "step": step}
        )
        for one in observed.ask(f"/api/v1/query_range?{asked}")["data"]["result"]:
            labels = {key: value for key, value in one["metric"].items() if key != "__name__"}
            told = ",".join(f"{key}={json.dumps(value)}" for key, value in sorted(labels.items()))
            values = {int(when): float(value) for when, value in one["values"]}
            # promtool's clock begins at 0.
            back = end - seconds if name.endswith("timestamp_seconds") else 0
            times = range(end - seconds, end + 1, step)
            words = (f"{values[when] - back:.12g}" if when in values else "_" for when in times)
            series.append({"series": f"{name}{{{told}}}", "values": " ".join(words)})
    document = {"interval": f"{step}s", "eval_times": ["3m", "5m"], "input_series": series}
    return json.dumps(document, indent=1) + "\n"


def test_a_load_that_grows_wrong_keys_and_a_greedy_client_are_named(observed: Observed) -> None:
    # Nothing is planned for processors, so limits are those of somebody who has promised figures.
    limits = ("-e", "observe_inter_token_seconds=0.01", "-e", "observe_first_token_seconds=5")
    observed.play(*limits)

    def harm() -> None:
        observed.complete("no-such-key", 1)
        observed.complete(KEYS["bob"], 1)
        time.sleep(0.5)

    with load(lambda: observed.complete(KEYS["alice"], 420), 8, 100):
        with load(harm, 0, 2):
            observed.called("KeysRefused", "ClientLimited")
        observed.called(
            *("CacheFull", "QueueGrows", "Preemptions", "FirstTokenSlow", "InterTokenSlow"),
            minutes=15,
        )
        with observed.stopped("VLLM::EngineCore"):
            observed.called("EngineStalled")
    assert not observed.firing() & {"KeysRefused", "ClientLimited"}


def test_what_stands_still_or_ended_is_named(observed: Observed) -> None:
    with observed.stopped("facts.json"):
        with observed.stopped("door/settings/haproxy.cfg"):
            observed.called("DoorDown")
        observed.called("FactsOld")
    with observed.stopped("prometheus-node-exporter"):
        observed.called("HostGone")
    for pid in observed.pids("VLLM::EngineCore"):
        os.kill(pid, signal.SIGKILL)
    observed.called("EngineDown", "ModelUnserved")
    # Nothing answers that could say whether the engines' key is right, and the page is still seen.
    wait_until(lambda: observed.shown("EngineDown", firing=True), 2 * MINUTE, "it on the page")
    assert [one["state"] for one in observed.page()["engines"][0]["ranks"]] == ["no answer"]
    observed.play(playbook="playbooks/start.yml")
    observed.calm("EngineDown", "ModelUnserved", "HostGone", "FactsOld", "DoorDown")
    wait_until(lambda: observed.shown("EngineDown", firing=False), 2 * MINUTE, "its end there")


def test_off_ends_it_and_the_door_shows_figures_no_more(observed: Observed) -> None:
    off = ("-e", "observe_mode=off")
    observed.play(*off)
    assert not observed.pids("observe/")
    observed.play(*off, playbook="playbooks/route.yml")
    assert "observer" not in (observed.cluster_dir / "door/settings/haproxy.cfg").read_text()
    assert observed.complete(KEYS["alice"], 1) == 200
