"""Real conversions and a hub of our own: models come out whole, equal, and with the right words."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node import models, weights
from vllm_ansible.node.models import Model
from vllm_ansible.node.safetensors import WeightsError

COMMIT = "c0ffee" + "0" * 34


def silent(*_: Any, **__: Any) -> None:
    """Take a report and forget it."""


def test_a_random_model_is_the_same_wherever_it_is_made(
    models_dir: Callable[[str], Path], weights_request: dict[str, Any], tmp_path: Path
) -> None:
    first = models_dir("deepseek-v3")
    known = json.loads(first.with_suffix(".json").read_text())
    request = {**weights_request, "models_dir": str(tmp_path)}
    again = weights.fetch(Model("random", "deepseek-v3"), request, silent)
    assert again["fingerprint"] == known["fingerprint"]


def test_the_tiny_deepseek_has_the_shape_of_the_real_one(
    models_dir: Callable[[str], Path],
) -> None:
    place = models_dir("deepseek-v3")
    config = json.loads((place / "config.json").read_text())
    assert config["model_type"] == "deepseek_v3"
    assert (config["topk_method"], config["scoring_func"]) == ("noaux_tc", "sigmoid")
    assert config["kv_lora_rank"] == 512
    assert config["n_routed_experts"] > 1
    assert "<|im_start|>assistant" in (place / "chat_template.jinja").read_text()


def test_the_packaged_model_becomes_safetensors(
    weights_request: dict[str, Any], tmp_path: Path
) -> None:
    model = Model("package", "smollm2-135m-instruct")
    request = {**weights_request, "models_dir": str(tmp_path)}
    record = weights.fetch(model, request, silent)
    assert models.look(model, str(tmp_path)) == record
    assert 250 << 20 < record["bytes"] < 300 << 20
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["package--smollm2-135m-instruct", "package--smollm2-135m-instruct.json"]


class Hub(BaseHTTPRequestHandler):
    """As much of the model hub as a download of two small files asks for."""

    files: dict[str, bytes] = {}  # noqa: RUF012  set by the fixture
    refuse = ""
    tokens: list[str] = []  # noqa: RUF012  read by the test
    requests: list[str] = []  # noqa: RUF012  read by the test

    def do_GET(self) -> None:
        """Answer metadata and files."""
        self.tokens.append(self.headers.get("Authorization", ""))
        self.requests.append(f"{self.command} {self.path}")
        path = self.path.partition("?")[0]
        if self.refuse:
            self.send_response(403 if self.refuse == "GatedRepo" else 404)
            self.send_header("X-Error-Code", self.refuse)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        name = path.rpartition(f"/resolve/{COMMIT}/")[2]
        if name in self.files:
            content = self.files[name]
            self.send_response(200)
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        else:
            siblings = [{"rfilename": one, "size": len(text)} for one, text in self.files.items()]
            content = json.dumps(
                {"id": "org/tiny", "sha": COMMIT, "siblings": siblings, "private": False}
            ).encode()
            if "/tree/" in path:
                content = json.dumps(
                    [
                        {"type": "file", "path": one, "size": len(text), "oid": "0" * 40}
                        for one, text in self.files.items()
                    ]
                ).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    do_HEAD = do_GET

    def log_message(self, *_: Any) -> None:
        """Keep the test's output clean."""


@pytest.fixture
def hub(models_dir: Callable[[str], Path]) -> Iterator[tuple[type[Hub], dict[str, str]]]:
    """Serve a tiny model; gives the hub and the variables that lead there."""
    place = models_dir("llama")
    served = type(
        "Served",
        (Hub,),
        {
            "files": {path.name: path.read_bytes() for path in place.iterdir()}
            | {"original/consolidated.pth": b"unwanted"},
            "tokens": [],
            "requests": [],
        },
    )
    server = ThreadingHTTPServer(("127.0.0.1", 0), served)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield (
        served,
        {
            "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_OFFLINE": "0",
        },
    )
    server.shutdown()


def test_a_download_is_of_one_commit_and_leaves_other_formats_out(
    hub: tuple[type[Hub], dict[str, str]], weights_request: dict[str, Any], tmp_path: Path
) -> None:
    served, variables = hub
    token = tmp_path / "token"
    token.write_text("hf_secret")
    request = {
        **weights_request,
        "models_dir": str(tmp_path / "models"),
        "environment": {**variables, "HF_HOME": str(tmp_path / "home")},
        "token_path": str(token),
    }
    model = Model("hub", "org/tiny")
    record = weights.fetch(model, request, silent)
    assert record["revision"] == COMMIT
    assert [one["name"] for one in record["files"]] == sorted(
        name for name in served.files if "/" not in name
    )
    place = Path(model.place(request["models_dir"]))
    assert sorted(path.name for path in place.iterdir()) == [one["name"] for one in record["files"]]
    assert "Bearer hf_secret" in served.tokens
    assert models.look(model, request["models_dir"]) == record

    # A lost file is fetched again, and nothing else.
    (place / "config.json").unlink()
    served.requests.clear()
    assert models.look(model, request["models_dir"]) is None
    assert weights.fetch(model, request, silent)["fingerprint"] == record["fingerprint"]


@pytest.mark.parametrize(
    ("code", "says", "fix"),
    [
        ("GatedRepo", "org/tiny is gated", "huggingface_token_file"),
        ("RepoNotFound", "the hub has no org/tiny", "check the spelling"),
    ],
)
def test_what_the_hub_refuses_is_told_with_a_way_out(
    hub: tuple[type[Hub], dict[str, str]],
    weights_request: dict[str, Any],
    tmp_path: Path,
    code: str,
    says: str,
    fix: str,
) -> None:
    served, variables = hub
    served.refuse = code
    request = {**weights_request, "models_dir": str(tmp_path), "environment": variables}
    with pytest.raises(WeightsError, match=says) as error:
        weights.fetch(Model("hub", "org/tiny"), request, silent)
    assert fix in error.value.details["fix"]


def test_a_hub_that_cannot_be_reached_is_named_as_such(
    weights_request: dict[str, Any], tmp_path: Path
) -> None:
    variables = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HUB_OFFLINE": "0"}
    request = {**weights_request, "models_dir": str(tmp_path), "environment": variables}
    with pytest.raises(WeightsError, match="cannot be downloaded") as error:
        weights.fetch(Model("hub", "org/tiny"), request, silent)
    assert "HF_ENDPOINT" in error.value.details["fix"]
