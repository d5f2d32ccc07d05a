"""The instrument for device runs: what it reads, refuses, keeps, ends and makes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest
import yaml

from vllm_ansible.node import launcher
from vllm_ansible.node.weights import safetensors
from vllm_ansible.plan.engines import parse_engines
from vllm_ansible.plan.estimate.architectures.config import Settings
from vllm_ansible.plan.estimate.architectures.understand import understand
from vllm_ansible.runner import Evidence, RunFailure, StageEnded, Warned

ROOT = Path(__file__).parents[3]
PLACE = ROOT / "benchmarks/device"
CONFIGS = ROOT / "tests/data/public/configs"


@pytest.fixture
def instrument(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(PLACE))
    for name in ("run", "fault", "models"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return import_module("run")


def runs_file(place: Path, **content: Any) -> Path:
    path = place / "runs.yml"
    path.write_text(yaml.safe_dump(content))
    return path


def test_each_list_of_runs_that_is_shipped_is_read(instrument: ModuleType) -> None:
    shipped = sorted(PLACE.glob("*.yml"))
    assert shipped
    for path in shipped:
        for run in instrument.read(path, "/models"):
            parse_engines(run.engines)


# Titles of rank processes as vLLM 0.32 sets them, seen on an H200.
RANKS = {"ray": "ray::RayWorkerProc.run", "mp": "VLLM::Worker_TP0", "data": "VLLM::EngineCore"}


def executor(engine: dict[str, Any]) -> str:
    """Return by what its ranks run: data ranks are servers of their own."""
    return "data" if engine["layout"].get("data", 1) > 1 else str(engine.get("executor", "ray"))


def test_what_a_shipped_list_kills_is_a_rank(instrument: ModuleType) -> None:
    """RayWorkerWrapper is what vLLM called it before: nothing was killed, and the run failed."""
    killed = [
        (run.kill, RANKS[executor(run.engines[0])])
        for path in PLACE.glob("*.yml")
        for run in instrument.read(path, "/models")
        if run.kill
    ]
    assert killed
    for words, title in killed:
        assert words in title


def test_what_runs_share_is_under_what_each_says(instrument: ModuleType, tmp_path: Path) -> None:
    path = runs_file(
        tmp_path,
        shared={"environment": {"A": "1", "B": "1"}, "vllm_args": {"max_num_seqs": 8}},
        runs=[
            {
                "name": "one",
                "engines": [{"name": "e", "model": "MODELS/m", "environment": {"B": "2"}}],
            }
        ],
    )
    (run,) = instrument.read(path, "/models")
    assert run.engines == [
        {
            "name": "e",
            "model": "/models/m",
            "environment": {"A": "1", "B": "2"},
            "vllm_args": {"max_num_seqs": 8},
        }
    ]


def test_files_beside_the_instrument_are_found_by_engines(
    instrument: ModuleType, tmp_path: Path
) -> None:
    engine = {"name": "e", "model": "m", "environment": {"PYTHONPATH": "HERE/scaled", "B": 2}}
    (run,) = instrument.read(runs_file(tmp_path, runs=[{"name": "one", "engines": [engine]}]), "")
    assert run.engines[0]["environment"] == {"PYTHONPATH": str(PLACE / "scaled"), "B": "2"}


@pytest.mark.parametrize(("process", "scaled"), [("e-serve-1", 3.0), ("e-serve-0", 1.0)])
def test_weights_of_the_named_process_alone_are_scaled(
    tmp_path: Path, process: str, scaled: float
) -> None:
    """A loader in the place of vLLM's, of the same name and form."""
    loader = tmp_path / "vllm/model_executor/model_loader/base_loader.py"
    loader.parent.mkdir(parents=True)
    for place in list(loader.parents)[:3]:
        (place / "__init__.py").touch()
    loader.write_text(
        "class Weight:\n"
        "    def __init__(self): self.data, self.value = self, 1.0\n"
        "    def mul_(self, by): self.value *= by\n"
        "class Model:\n"
        "    def __init__(self):\n"
        "        names = ('layers.0.self_attn.o_proj.weight', 'norm.weight')\n"
        "        self.weights = {name: Weight() for name in names}\n"
        "    def named_parameters(self): return self.weights.items()\n"
        "class BaseModelLoader:\n"
        "    def load_model(self): return Model()\n"
    )
    code = (
        "from vllm.model_executor.model_loader.base_loader import BaseModelLoader as loader\n"
        "print([one.value for one in loader().load_model().weights.values()])"
    )
    environment = {
        "PYTHONPATH": f"{PLACE / 'scaled'}:{tmp_path}",
        **{"SCALED_PROCESS": "e-serve-1", "SCALED_BY": "3"},
        launcher.MARKER: f"/cluster/processes/{process}.json",
    }
    said = subprocess.run(
        [sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True
    )
    assert said.stdout.splitlines()[-1] == str([scaled, 1.0])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({}, "holds no runs"),
        ({"runs": [{"name": "one"}]}, "run 1: expected name and engines"),
        ({"runs": [{"name": "one", "engines": [], "load": 1}]}, "unknown load"),
        ({"runs": [{"name": "one", "engines": [], "fails": {"stage": "serve"}}]}, "stage and says"),
        ({"runs": [{"name": "one", "engines": [{"model": "MODELS/m"}]}]}, "--models"),
    ],
)
def test_what_cannot_be_carried_out_is_refused(
    instrument: ModuleType, tmp_path: Path, content: dict[str, Any], words: str
) -> None:
    with pytest.raises(instrument.RunsError, match=words):
        instrument.read(runs_file(tmp_path, **content), "")


def test_a_run_keeps_its_figures_and_each_load(
    instrument: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[tuple[str, dict[str, Any]]] = []

    def run(inventory: str, playbook: str, **options: Any) -> Any:
        asked.append((playbook, options))
        say = options["on_event"]
        values = {"engines": [{"name": "e", "output_tokens_per_second": 7.5}]}
        say(Evidence(stage="benchmark", host="h", gate="benchmark", summary="7.5", values=values))
        say(Evidence(stage="prepare", host="h", gate="hosts", summary="ready", values={"x": 1}))
        say(StageEnded(stage="serve", seconds=1.23, ok=True))
        say(Warned(text="mind this"))
        return type("Outcome", (), {"changed": 3})

    monkeypatch.setattr(instrument, "run", run)
    wanted = instrument.Run("one", [{"name": "e"}], loads=({"concurrency": 8},))
    found = instrument.carry_out("inventories/mine", wanted)
    json.dumps(found)
    assert (found["ok"], found["changed"], found["stages"]) == (True, 3, {"serve": 1.2})
    assert found["gates"] == {"benchmark": [{"engines": asked and found["loads"][0]["engines"]}]}
    assert found["lines"] == ["benchmark: 7.5", "prepare: ready"]
    assert found["warnings"] == ["mind this"]
    assert found["loads"][0]["load"] == {"concurrency": 8}
    (_, first), (_, second) = asked
    assert first["extra_vars"]["allow_disruption"] is True
    assert second["extra_vars"]["benchmark_concurrency"] == 8
    assert (second["tags"], second["extra_vars"]["benchmark_again"]) == ("benchmark", True)


@pytest.mark.parametrize(
    ("stage", "words", "expected"),
    [
        ("verify", "4 GB/s, by NCCL_P2P_DISABLE", True),
        ("serve", "4 GB/s, by NCCL_P2P_DISABLE", False),
        ("verify", "another run holds this cluster", False),
    ],
)
def test_a_run_that_must_fail_does_so_in_its_stage_for_its_reason(
    instrument: ModuleType, monkeypatch: pytest.MonkeyPatch, stage: str, words: str, expected: bool
) -> None:
    asked = []

    def run(_: str, playbook: str, **__: Any) -> Any:
        asked.append(playbook)
        raise RunFailure("links are slow", stage=stage, found=words)

    monkeypatch.setattr(instrument, "run", run)
    fails = {"stage": "verify", "says": "NCCL_P2P_DISABLE"}
    wanted = instrument.Run("one", [{"name": "e"}], fails=fails, stopped=True)
    found = instrument.carry_out("mine", wanted)
    assert asked == ["playbooks/stop.yml", "site.yml"]
    assert found["as_expected"] is expected
    assert found["failure"] == {"stage": stage, "message": "links are slow", "found": words}


@pytest.mark.parametrize("what", ["load", "no process"])
def test_a_load_that_fails_or_an_engine_that_stays_down_is_not_as_expected(
    instrument: ModuleType, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    def run(_: str, __: str, **options: Any) -> Any:
        if what == "load" and options.get("tags") == "benchmark":
            raise RunFailure("3 of 8 answered", stage="benchmark")
        return type("Outcome", (), {"changed": 0})

    monkeypatch.setattr(instrument, "run", run)
    more = {"loads": ({"concurrency": 8},)} if what == "load" else {"kill": "EngineCore"}
    name = f"none{os.getpid()}"
    found = instrument.carry_out("mine", instrument.Run("one", [{"name": name}], **more))
    assert found["ok"] and not found["as_expected"]


def test_memory_is_held_while_a_site_runs_and_not_longer(
    instrument: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    holder = tmp_path / "stranger.py"
    holder.write_text("import sys; print('holds', flush=True); sys.stdin.read(); print('ended')")
    monkeypatch.setattr(instrument, "__file__", str(tmp_path / "run.py"))
    with instrument.stranger(1):
        pass
    holder.write_text("import sys; sys.exit('cuInit fails')")
    with pytest.raises(instrument.RunsError, match="nothing holds memory"), instrument.stranger(1):
        pytest.fail("entered")


def test_what_was_left_out_is_kept(
    instrument: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    runs = runs_file(tmp_path, runs=[{"name": "one", "engines": [{"name": "e", "model": "m"}]}])
    to = tmp_path / "found.json"
    monkeypatch.setattr(
        sys, "argv", ["run.py", str(runs), "-i", "mine", "--to", str(to), "--minutes", "-1"]
    )
    assert instrument.main() == 0
    assert json.loads(to.read_text())["left_out"] == ["one"]


def test_one_process_of_the_engine_is_ended_and_no_other(instrument: ModuleType) -> None:
    fault = import_module("fault")
    words = [sys.executable, "-c", "import time; time.sleep(60)", "VLLM::Worker"]

    def start(record: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(words, env={**os.environ, launcher.MARKER: record})

    name = f"one{os.getpid()}"
    ours, other = start(f"/c/{name}-serve.json"), start(f"/c/{name}x-serve.json")
    try:
        # Until it has replaced the process that it was forked from.
        for _ in range(100):
            if Path(f"/proc/{ours.pid}/cmdline").read_bytes().endswith(b"VLLM::Worker\0"):
                break
            time.sleep(0.05)
        assert "VLLM::Worker" in fault.kill(name, "VLLM::Worker")
        assert ours.wait(120) == -9
        assert other.poll() is None
        with pytest.raises(fault.FaultError, match="EngineCore"):
            fault.kill(f"{name}x", "EngineCore")
    finally:
        other.kill()
        ours.kill()
        other.wait()


@pytest.mark.parametrize(
    ("config", "gib"),
    [
        # As the index of each on the hub says: 16,381,470,720 and 61,064,245,248 bytes.
        ("Qwen--Qwen3-8B", 15.3),
        ("Qwen--Qwen3-30B-A3B", 56.9),
        ("Qwen--Qwen3-30B-A3B-FP8", 29.0),
        # 641.3 on the hub, where the layer for multi-token prediction has 14.4.
        ("deepseek-ai--DeepSeek-R1", 626.9),
        # 13,761,264,768 bytes there.
        ("openai--gpt-oss-20b", 12.8),
    ],
)
def test_a_shape_has_the_headers_of_the_published_model(
    instrument: ModuleType, tmp_path: Path, config: str, gib: float
) -> None:
    models = import_module("models")
    wanted = json.loads((CONFIGS / f"{config}_config.json").read_text())
    total = models.shape(wanted, tmp_path / "m")
    assert round(total / 2**30, 1) == gib
    index = json.loads((tmp_path / "m/model.safetensors.index.json").read_text())
    files = sorted((tmp_path / "m").glob("*.safetensors"))
    assert {file.name for file in files} == set(index["weight_map"].values())
    safetensors.check(str(tmp_path / "m"))
    assert all(file.stat().st_blocks * 512 < 4 << 20 for file in files)


AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}


def test_a_shape_in_awq_has_what_the_planner_counts(instrument: ModuleType, tmp_path: Path) -> None:
    wanted = json.loads((CONFIGS / "Qwen--Qwen3-8B_config.json").read_text())
    wanted["quantization_config"] = AWQ
    total = import_module("models").shape(wanted, tmp_path / "m")
    model = understand(Settings(wanted, "awq"), "awq")
    planned = sum(tensor.bytes for tensor in model.tensors())
    assert total == pytest.approx(planned, rel=0.001)


def test_an_adapter_has_every_linear_layer(instrument: ModuleType, tmp_path: Path) -> None:
    wanted = json.loads((CONFIGS / "Qwen--Qwen3-8B_config.json").read_text())
    total = import_module("models").adapter(wanted, tmp_path / "a")
    # Sizes in and out of query and output, key and value, gate, up and down.
    sizes = 2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 12288)
    assert total == 36 * 16 * 2 * sizes
    assert (tmp_path / "a/adapter_model.safetensors").stat().st_size > total
    modules = json.loads((tmp_path / "a/adapter_config.json").read_text())["target_modules"]
    assert len(modules) == 7


def test_models_are_found_in_arguments_too(instrument: ModuleType, tmp_path: Path) -> None:
    engine = {"name": "a", "model": "MODELS/a", "vllm_args": {"lora_modules": ["b=MODELS/b"]}}
    (run,) = instrument.read(runs_file(tmp_path, runs=[{"name": "one", "engines": [engine]}]), "/m")
    assert run.engines[0]["vllm_args"] == {"lora_modules": ["b=/m/b"]}


class Rank(BaseHTTPRequestHandler):
    """A server with counters that finds half of each prompt in its cache."""

    asked = 0
    named: ClassVar[set[str | None]] = set()

    def do_GET(self) -> None:
        lines = ("hits", self.asked * 50), ("queries", self.asked * 100)
        self._say("".join(f'vllm:prefix_cache_{n}_total{{a="b"}} {v}.0\n' for n, v in lines))

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        type(self).asked += 1
        type(self).named.add(self.headers["X-Conversation"])
        word = json.dumps({"choices": [{"delta": {"content": "word"}}]})
        self._say(f"data: {word}\n\ndata: [DONE]\n\n")

    def _say(self, text: str) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def test_conversations_say_how_much_was_cached(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("k\n")
    with ThreadingHTTPServer(("127.0.0.1", 0), Rank) as server:
        threading.Thread(target=server.serve_forever).start()
        port = server.server_port
        words = [f"http://127.0.0.1:{port}/v1", "m", tmp_path / "key", f"{port}", "--users", "3"]
        run = subprocess.run(
            [sys.executable, PLACE / "turns.py", *words, "--turns=2", "--named", "--pause=0.8"],
            capture_output=True,
            text=True,
            check=True,
        )
        server.shutdown()
    found = json.loads(run.stdout)
    assert (found["answers"], found["failures"], found["cached_share"]) == (6, 0, 0.5)
    assert found["ranks"] == [{"hits": 300.0, "queries": 600.0}]
    # Half of the pause at least is waited for before the second turn.
    assert found["seconds"] >= 0.4
    assert len(Rank.named) == 3 and None not in Rank.named
