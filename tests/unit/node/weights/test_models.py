"""A model has one place, is checked once, and is known again by one stat a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node.weights import fetch as weights
from vllm_ansible.node.weights import models
from vllm_ansible.node.weights.models import Model, model_of, wanted_models
from vllm_ansible.node.weights.safetensors import WeightsError

from .test_safetensors import write_shard


def make_model(directory: Path) -> Path:
    directory.mkdir(parents=True)
    (directory / "config.json").write_text("{}")
    write_shard(directory / "model.safetensors", ["weight"])
    return directory


@pytest.mark.parametrize(
    ("engine", "model", "place"),
    [
        ({"model": "org/Name"}, Model("hub", "org/Name"), "/m/org--Name"),
        ({"model": "hub:org/Name"}, Model("hub", "org/Name"), "/m/org--Name"),
        (
            {"model": "org/Name", "vllm_args": {"revision": "v1"}},
            Model("hub", "org/Name", "v1"),
            "/m/org--Name@v1",
        ),
        ({"model": "/data/x"}, Model("path", "/data/x"), "/data/x"),
        (
            {"model": "smollm2-135m-instruct", "model_source": "package"},
            Model("package", "smollm2-135m-instruct"),
            "/m/package--smollm2-135m-instruct",
        ),
        ({"model": "random:llama"}, Model("random", "llama"), "/m/random--llama"),
        (
            {"model": "s3://models/team/tiny/"},
            Model("s3", "s3://models/team/tiny"),
            "/m/s3--models--team--tiny--513376fc3937",
        ),
        (
            {"model": "s3://models/team/tiny", "model_source": "s3"},
            Model("s3", "s3://models/team/tiny"),
            "/m/s3--models--team--tiny--513376fc3937",
        ),
    ],
)
def test_an_engine_names_its_model(engine: dict[str, Any], model: Model, place: str) -> None:
    assert model_of({"name": "e", **engine}) == model
    assert model.place("/m") == place


def test_two_prefixes_never_share_a_directory() -> None:
    names = [
        "s3://models/a/b",
        "s3://models/a--b",
        "s3://models/a+b",
        "s3://models/a=b",
        "s3://models-a/b",
        "s3://models",
        *(f"s3://models/{'long/' * 150}{end}" for end in "ab"),
        *(f"s3://models/{end}{'/long' * 150}" for end in "ab"),
    ]
    slugs = {model_of({"name": "e", "model": name}).slug() for name in names}
    assert len({slug.lower() for slug in slugs}) == len(names)
    for slug in slugs:
        assert len(f"{slug}.json.partial") < 255
        assert "/" not in slug and not slug.startswith(".")


@pytest.mark.parametrize(
    "name",
    [
        "s3://",
        "s3:/models/tiny",
        "S3://models/tiny",
        "s3://models/../other",
        "s3://models//tiny",
        "s3://models/ti ny",
        "s3://AKIA:secret@models/tiny",
        "s3://models/tiny?versionId=1",
    ],
)
def test_what_names_no_bucket_is_refused(name: str) -> None:
    with pytest.raises(WeightsError, match="does not name a model in object storage") as error:
        model_of({"name": "e", "model": name})
    assert "secret" not in f"{error.value} {error.value.details}"


def test_a_revision_of_a_bucket_is_refused() -> None:
    engine = {"name": "e", "model": "s3://models/tiny", "vllm_args": {"revision": "v1"}}
    with pytest.raises(WeightsError, match="has no revision") as error:
        model_of(engine)
    assert error.value.details["where"] == "engine e"


def test_an_unknown_random_model_is_refused_with_those_there_are() -> None:
    with pytest.raises(WeightsError, match="no random model gpt") as error:
        model_of({"name": "e", "model": "random:gpt"})
    assert "random:deepseek-v3" in error.value.details["expected"]


def test_a_host_wants_the_models_of_its_engines_alone() -> None:
    engines = [
        {"name": "a", "model": "random:llama"},
        {"name": "b", "model": "random:llama", "hosts": ["h2"]},
        {"name": "c", "model": "random:llama", "hosts": []},
    ]
    assert list(wanted_models(engines, "h1")) == ["a", "c"]
    assert list(wanted_models(engines, "h2")) == ["a", "b", "c"]


@pytest.fixture
def kept(tmp_path: Path) -> tuple[Model, str, Path]:
    """Give a model that was checked and recorded."""
    model = Model("random", "llama")
    models_dir = str(tmp_path / "models")
    place = make_model(Path(model.place(models_dir)))
    # As models that embed text have it.
    (place / "1_Pooling").mkdir()
    (place / "1_Pooling" / "config.json").write_text("{}")
    models.write_record(model, models_dir, models.make_record(model, str(place), str(place)))
    return model, models_dir, place


def test_what_was_checked_is_known_again_without_reading_it(
    kept: tuple[Model, str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, models_dir, _ = kept
    monkeypatch.setattr(models, "file_digest", lambda *_: pytest.fail("it was read again"))
    record = models.look(model, models_dir)
    assert record is not None
    assert record["bytes"] > 0


@pytest.mark.parametrize("change", ["touched", "longer", "removed", "added", "folder"])
def test_a_changed_file_is_noticed(kept: tuple[Model, str, Path], change: str) -> None:
    model, models_dir, place = kept
    weights_file = place / "model.safetensors"
    if change == "touched":
        os.utime(weights_file, ns=(1, 1))
    elif change == "longer":
        found = weights_file.stat()
        weights_file.write_bytes(weights_file.read_bytes() + b"x")
        os.utime(weights_file, ns=(found.st_atime_ns, found.st_mtime_ns))
    elif change == "removed":
        weights_file.unlink()
    elif change == "folder":
        (place / "1_Pooling" / "config.json").write_text("{ }")
    else:
        (place / "model.safetensors.index.json").write_text("{}")
    assert models.look(model, models_dir) is None


def test_the_fingerprint_is_of_the_content_not_of_the_place(tmp_path: Path) -> None:
    model = Model("random", "llama")
    prints = []
    for number, content in enumerate(["{}", "{}", "{ }"]):
        place = make_model(tmp_path / str(number))
        (place / "config.json").write_text(content)
        prints.append(models.make_record(model, str(place), str(place))["fingerprint"])
    assert prints[0] == prints[1] != prints[2]


def test_one_host_with_another_model_is_named() -> None:
    same = {"path": "/m", "fingerprint": "a" * 64, "bytes": 10, "files": 2}
    other = {**same, "fingerprint": "b" * 64, "bytes": 9}
    problems = models.differences(
        {"h1": {"chat": same}, "h2": {"chat": same}, "h3": {"chat": other}}
    )
    assert [one["where"] for one in problems] == ["h3: /m"]
    assert "10 bytes" in problems[0]["expected"]
    assert "on h1" in problems[0]["expected"]
    assert "9 bytes" in problems[0]["found"]


@pytest.fixture
def wanted(tmp_path: Path) -> dict[str, Any]:
    """Give what the module hands over, with scripts that are shell's work in Python."""
    return {
        "models_dir": str(tmp_path / "models"),
        "python": "/usr/bin/python3",
        "environment": {},
        "scripts": {},
    }


def silent(*_: Any, **__: Any) -> None:
    """Take a report and forget it."""


GOOD = """
import sys, os, struct, json
out = sys.argv[-1]
open(out + "/config.json", "w").write("{}")
raw = json.dumps({"w": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}).encode()
handle = os.open(out + "/model.safetensors", os.O_CREAT | os.O_WRONLY, 0o600)
os.write(handle, struct.pack("<Q", len(raw)) + raw + b"x")
"""


def test_a_model_gets_its_name_only_when_it_is_whole(wanted: dict[str, Any]) -> None:
    model = Model("random", "llama")
    place = Path(model.place(wanted["models_dir"]))
    wanted["scripts"] = {"random_model": GOOD.replace('+ b"x"', "")}
    with pytest.raises(WeightsError, match="damaged"):
        weights.fetch(model, wanted, silent)
    assert not place.exists()
    assert models.look(model, wanted["models_dir"]) is None

    wanted["scripts"] = {"random_model": GOOD}
    weights.fetch(model, wanted, silent)
    assert models.look(model, wanted["models_dir"]) is not None
    assert sorted(os.listdir(wanted["models_dir"])) == ["random--llama", "random--llama.json"]


def test_another_user_can_read_what_was_made(wanted: dict[str, Any]) -> None:
    wanted["scripts"] = {"random_model": GOOD}
    weights.fetch(Model("random", "llama"), wanted, silent)
    place = Path(wanted["models_dir"]) / "random--llama"
    assert {oct(path.stat().st_mode & 0o777) for path in place.iterdir()} == {"0o644"}
    assert place.stat().st_mode & 0o777 == 0o755


def test_a_script_that_fails_says_why(wanted: dict[str, Any]) -> None:
    wanted["scripts"] = {"random_model": "raise SystemExit('no memory')"}
    with pytest.raises(WeightsError, match="random model failed") as error:
        weights.fetch(Model("random", "llama"), wanted, silent)
    assert error.value.details["found"] == "no memory"


def test_a_script_can_choose_its_words_and_report_progress(
    wanted: dict[str, Any], tmp_path: Path
) -> None:
    said: list[tuple[Any, ...]] = []
    seen = tmp_path / "seen"

    def report(*progress: Any) -> None:
        said.append(progress)
        if progress[:1] == (5,):
            seen.touch()

    wanted["scripts"] = {
        "random_model": "import json, os, time\n"
        "print(json.dumps({'progress': [5, 10, 'bytes', 'downloading']}), flush=True)\n"
        f"for _ in range(2400): os.path.exists({str(seen)!r}) or time.sleep(0.05)\n"
        "print(json.dumps({'failed': 'it is gated', 'details': {'fix': 'ask'}}))\n"
        "raise SystemExit(1)\n"
    }
    with pytest.raises(WeightsError, match="it is gated") as error:
        weights.fetch(Model("random", "llama"), wanted, report)
    assert error.value.details == {"fix": "ask"}
    assert (5, 10, "bytes", "downloading") in said


def test_credentials_are_named_only_where_there_are_some(
    wanted: dict[str, Any], tmp_path: Path
) -> None:
    file = tmp_path / "object_storage_credentials"
    given = {**wanted, "credentials_path": str(file)}
    assert "AWS_SHARED_CREDENTIALS_FILE" not in weights.environment(given)
    file.write_text("[default]\n")
    assert weights.environment(given)["AWS_SHARED_CREDENTIALS_FILE"] == str(file)


def test_the_token_is_named_only_where_there_is_one(wanted: dict[str, Any], tmp_path: Path) -> None:
    token = tmp_path / "token"
    assert "HF_TOKEN_PATH" not in weights.environment({**wanted, "token_path": str(token)})
    token.write_text("hf_x")
    assert weights.environment({**wanted, "token_path": str(token)})["HF_TOKEN_PATH"] == str(token)
