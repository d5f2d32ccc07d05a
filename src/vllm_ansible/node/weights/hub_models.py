"""Models of the hub on one host: brought here with its peers, then checked and recorded."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ..cluster.key import derived
from . import kept_digests
from .models import Model, make_record, write_record
from .store.gathering import Gathering, Part
from .store.hub import Hub
from .store.manifest import parse
from .store.receiver import Peer, way_of
from .store.shelf import Shelf
from .store.signing import DOMAIN

Report = Callable[..., None]


def gather(
    models: Sequence[Model],
    wanted: Mapping[str, Any],
    environment: Mapping[str, str],
    report: Report,
) -> list[str]:
    """Bring the models of the hub here, from peers and from the hub; return what was damaged.

    environment: what the hub's program runs with.
    """
    store = wanted["store"]
    names = ", ".join(model.name for model in models)
    parts = [_part(model, wanted) for model in models]
    for model in models:
        with suppress(FileNotFoundError):
            os.unlink(model.record(wanted["models_dir"]))
    hub = Hub(
        store["python"],
        wanted["scripts"]["hub"],
        environment,
        store["hub_workers"],
        store["stall_seconds"],
    )
    gathering = Gathering(
        parts,
        # A host alone has nobody to prove anything to.
        derived(store["key_file"], DOMAIN) if store["key_file"] else b"",
        store["address"],
        hub if store["outside"] else None,
        store["streams"],
        store["rehash"],
    )
    gathering.run(lambda done, total, unit, text: report(done, total, unit, f"{names}: {text}"))
    return gathering.defects


def _part(model: Model, wanted: Mapping[str, Any]) -> Part:
    """Return a model of the hub as the host's part in bringing it."""
    store, slug = wanted["store"], model.slug()
    manifest = parse(slug, model.name, store["manifests"][slug])
    known = {host: Peer(host, at, store["port"]) for host, at in store["addresses"].items()}
    peers = {name: way_of(hosts, known) for name, hosts in store["upstream"].get(slug, {}).items()}
    return Part(manifest, Shelf(wanted["models_dir"], slug), peers)


def settle(model: Model, wanted: Mapping[str, Any], report: Report) -> dict[str, Any]:
    """Check a model that was brought whole, and keep what was found."""
    part = _part(model, wanted)
    place = part.shelf.final
    make_readable(place)
    digests = {name: one["sha256"] for name, one in part.shelf.stock().items()}
    revision = part.manifest.revision
    record = make_record(model, place, place, revision, report, digests)
    kept_digests.keep(part.shelf, wanted["store"]["manifests"][model.slug()]["files"])
    write_record(model, wanted["models_dir"], record)
    return record


def make_readable(place: str) -> None:
    """Let the service user read it: safetensors writes its files for the owner alone."""
    os.chmod(place, 0o755)  # noqa: S103  weights are no secret
    for folder, folders, files in os.walk(place):
        for name in folders:
            os.chmod(os.path.join(folder, name), 0o755)  # noqa: S103  see above
        for name in files:
            os.chmod(os.path.join(folder, name), 0o644)
