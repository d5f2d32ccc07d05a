"""Where a model's configuration comes from: a file, a directory, or the hub's small files."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from vllm_ansible.node.weights.model_files import unpack
from vllm_ansible.plan.estimate.architectures.checkpoint import (
    INDEX,
    Checkpoint,
    Stored,
    in_directory,
)
from vllm_ansible.plan.estimate.architectures.config import Settings, parse
from vllm_ansible.plan.estimate.architectures.model import Model
from vllm_ansible.plan.estimate.architectures.understand import understand
from vllm_ansible.problem import PlanError, Problem

CONFIG, QUANTIZATION = "config.json", "hf_quant_config.json"

# Fetches one file of a repository into a directory; returns whether the repository has it.
Fetch = Callable[[str, str, Path], bool]


def load(
    model: str, cache: Path | None = None, fetch: Fetch | None = None, **options: str
) -> Model:
    """Return the model named by a file, a directory, or a repository of the hub.

    A repository's small files are fetched once and kept under `cache`. `options` are the engine's,
    as `understand` has them. Raises PlanError in one
    sentence for what is not there, cannot be fetched or cannot be read.
    """
    path = Path(model).expanduser()
    if path.is_dir():
        return _from_directory(path, path.name, **options)
    if path.is_file():
        return _from_files(path, path.stem, **options)
    if model.count("/") == 1 and not model.startswith((".", "/", "~")):
        kept = (cache or default_cache()) / model.replace("/", "--")
        _fetch_once(model, kept, fetch or from_hub)
        return _from_directory(kept, model, **options)
    raise PlanError(
        Problem(
            f"there is no model at {model}",
            "a config.json, a directory that holds one, or a repository such as org/name",
            model,
            fix="correct the path",
        )
    )


def from_host(found: Mapping[str, Any], name: str, **options: str) -> Model:
    """Return the model whose files a host read; see node/weights/model_files.py, and `load`.

    Raises PlanError in one sentence for what cannot be read or planned for.
    """
    place = str(found["place"])
    config = parse(found["config"], f"{place}/{CONFIG}")
    text = str(found.get("quantization") or "")
    beside = parse(text, f"{place}/{QUANTIZATION}") if text else None
    checkpoint = None
    if found.get("tensors"):
        tensors = unpack(found["tensors"])
        checkpoint = Checkpoint.of(
            {key: Stored(str(dtype), tuple(shape)) for key, (dtype, shape) in tensors.items()}
        )
    elif found.get("names"):
        checkpoint = Checkpoint(frozenset(unpack(found["names"])), {}, int(found["total"]))
    return understand(config, name, beside, checkpoint, **options)


def default_cache() -> Path:
    """Return where the small files of repositories are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "vllm-ansible" / "models"


def _from_directory(directory: Path, name: str, **options: str) -> Model:
    path = directory / CONFIG
    if not path.is_file():
        raise PlanError(
            Problem(
                f"the directory of {name} holds no {CONFIG}",
                CONFIG,
                where=str(directory),
                fix="name the directory of the model's files",
            )
        )
    beside, checkpoint = _beside(directory), in_directory(directory)
    return understand(_read(path), name, beside, checkpoint, **options)


def _from_files(path: Path, name: str, **options: str) -> Model:
    """Return the model of one file; files of the same stem beside it may say more."""
    name = name.removesuffix("_config").removesuffix("config") or path.parent.name
    beside = _beside(path.parent, path.name)
    return understand(_read(path), name.replace("--", "/"), beside, None, **options)


def _beside(directory: Path, config: str = CONFIG) -> Settings | None:
    path = directory / config.replace(CONFIG, QUANTIZATION)
    different = path.name != config
    return _read(path) if different and path.is_file() else None


def _read(path: Path) -> Settings:
    try:
        return parse(path.read_bytes(), str(path))
    except OSError as error:
        raise PlanError(
            Problem(f"{path.name} cannot be read: {error.strerror}", where=str(path))
        ) from error


def _fetch_once(repository: str, kept: Path, fetch: Fetch) -> None:
    """Fetch what is not kept yet; the configuration comes last, so that a kept one is whole."""
    if (kept / CONFIG).is_file():
        return
    kept.mkdir(parents=True, exist_ok=True)
    for name in (QUANTIZATION, INDEX):
        fetch(repository, name, kept)
    if not fetch(repository, CONFIG, kept):
        raise PlanError(
            Problem(
                f"{repository} has no {CONFIG}, it is no model that vLLM can read",
                CONFIG,
                where=repository,
                fix="name the repository of the weights",
            )
        )


def from_hub(repository: str, name: str, directory: Path) -> bool:
    """Fetch one file from the hub; return whether the repository has it."""
    try:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError
    except ImportError as error:
        raise PlanError(
            Problem(
                f"to fetch {repository} the package huggingface_hub is needed",
                where=repository,
                fix="install it, or name a config.json",
            )
        ) from error
    try:
        hf_hub_download(repository, name, local_dir=directory)
    except EntryNotFoundError as error:
        if not isinstance(error, LocalEntryNotFoundError):
            return False
        raise _unreachable(repository, error) from error
    except Exception as error:  # the hub's client raises what its transport does
        raise _unreachable(repository, error) from error
    return True


def _unreachable(repository: str, error: Exception) -> PlanError:
    reason = str(error).strip().split("\n")[0][:200] or type(error).__name__
    return PlanError(
        Problem(
            f"{repository} could not be fetched from the hub: {reason.rstrip('.')}",
            where=repository,
            fix="name its config.json or a directory if there is no connection",
        )
    )
