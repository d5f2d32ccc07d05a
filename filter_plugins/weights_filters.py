"""Jinja filters over the ports of a cluster, and over who passes which weights on to whom."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

# Filters run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.errors import AnsibleFilterError

from vllm_ansible.inventory.play_variables import plain
from vllm_ansible.node.weights.models import model_of, wanted_models
from vllm_ansible.node.weights.safetensors import WeightsError
from vllm_ansible.plan import ports
from vllm_ansible.weights import spread


def cluster_ports(port_base: int) -> dict[str, int]:
    """Return what a cluster itself listens on, by name."""
    return asdict(ports.cluster_ports(int(port_base)))


def weights_from_outside(engines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the engines whose models come from the hub or from object storage."""
    return [one for one in plain(engines) if _of(model_of, one).from_outside]


def weights_of_volume(engines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the engines whose models come from outside, as if each ran on every host."""
    return [{**one, "hosts": []} for one in weights_from_outside(engines)]


def weights_held(engines: Sequence[Mapping[str, Any]], *more: Any) -> str:
    """Return what stands for the models of engines, and for whatever else decides on files."""
    names = sorted({_of(model_of, one).slug() for one in plain(engines)})
    return hashlib.sha256(json.dumps([names, plain(list(more))]).encode()).hexdigest()


def weights_from_buckets(engines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the engines whose models come from object storage."""
    return [one for one in plain(engines) if _of(model_of, one).source == "s3"]


def weights_writers(
    hosts: Sequence[str], marks: Mapping[str, str], outside: Sequence[str]
) -> dict[str, str]:
    """Return for each host who brings its models."""
    return spread.writers(plain(hosts), plain(marks), plain(outside))


def weights_needs(
    writers: Mapping[str, str], engines: Sequence[Mapping[str, Any]]
) -> dict[str, list[str]]:
    """Return the directories of outside models that each host brings, for itself and others."""
    found: dict[str, set[str]] = {}
    for host, writer in writers.items():
        models = _of(wanted_models, plain(engines), host).values()
        slugs = {model.slug() for model in models if model.from_outside}
        found[writer] = found.get(writer, set()) | slugs
    return {host: sorted(slugs) for host, slugs in found.items()}


def weights_asks_hub(host: str, needs: Mapping[str, Sequence[str]], outside: Sequence[str]) -> bool:
    """Tell whether a host asks the hub: it may, or a model needs it and nobody else may."""
    alone = (
        next(other for other, slugs in needs.items() if slug in slugs) == host
        and not any(slug in needs.get(other, ()) for other in outside)
        for slug in needs[host]
    )
    return host in outside or any(alone)


def _of(read: Callable[..., Any], *arguments: Any) -> Any:
    """Return what is read of engines, or refuse them in a filter's way."""
    try:
        return read(*arguments)
    except WeightsError as error:
        raise AnsibleFilterError(f"{error}: {error.details}") from error


def weights_width(outside: Sequence[str], workers: int, streams: int) -> dict[str, int]:
    """Return how many files a host takes at once: hub_workers from the hub, streams from peers."""
    found = spread.width(len(outside), int(workers), int(streams))
    return dict(zip(("hub_workers", "streams"), found, strict=True))


def weights_upstream(
    host: str,
    manifests: Mapping[str, Mapping[str, Any]],
    needs: Mapping[str, Sequence[str]],
    has: Mapping[str, Mapping[str, Sequence[str]]],
    outside: Sequence[str],
) -> dict[str, dict[str, dict[str, list[str]]]]:
    """Return for each model and file the hosts that can send it to this one."""
    return {
        slug: spread.upstream(
            host,
            [str(one["name"]) for one in manifests[slug]["files"]],
            [other for other, slugs in needs.items() if slug in slugs],
            {other: set(files.get(slug, ())) for other, files in has.items()},
            outside,
        )
        for slug in needs[host]
    }


def pruned_text(pruned: Mapping[str, Sequence[Mapping[str, Any]]], check: bool) -> str:
    """Return in words what model_removal removed, or would remove, and what stays."""
    gone = [f"{one['name']} ({one['bytes'] / 2**20:.0f} MiB)" for one in pruned["removed"]]
    stays = [f"{one['name']} stays: {one['why']}" for one in pruned["stays"]]
    verb = "would remove" if check else "removed"
    return "; ".join([f"{verb} {', '.join(gone)}" if gone else "nothing to remove", *stays])


class FilterModule:
    """What Ansible looks for in this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {
            "cluster_ports": cluster_ports,
            "pruned_text": pruned_text,
            "weights_asks_hub": weights_asks_hub,
            "weights_from_buckets": weights_from_buckets,
            "weights_from_outside": weights_from_outside,
            "weights_held": weights_held,
            "weights_needs": weights_needs,
            "weights_of_volume": weights_of_volume,
            "weights_upstream": weights_upstream,
            "weights_width": weights_width,
            "weights_writers": weights_writers,
        }
