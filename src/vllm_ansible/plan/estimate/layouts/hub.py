"""Whether a model that only the hub has can be asked for now, told within seconds."""

from __future__ import annotations

import os
from pathlib import Path

from vllm_ansible.plan.estimate.architectures.model import Model
from vllm_ansible.plan.estimate.architectures.source import CONFIG, default_cache, load
from vllm_ansible.problem import PlanError, Problem

ENDPOINT = "https://huggingface.co"
PROXIES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")
SECONDS = 3.0


def model_of(name: str, **options: str) -> Model:
    """Return the model of a file, a directory or a hub name, as `load` does with its options.

    The hub's own client tries for half a minute when nobody answers; here a name that is not kept
    yet is refused in one sentence when the hub takes no connection.
    """
    asks = name.count("/") == 1 and not name.startswith((".", "/", "~"))
    kept = default_cache() / name.replace("/", "--") / CONFIG
    if asks and not Path(name).exists() and not kept.is_file():
        _reach(name)
    return load(name, None, None, **options)


def _reach(name: str) -> None:
    """Refuse where the hub takes no connection; behind a proxy the hub's client has to try."""
    if any(os.environ.get(proxy) for proxy in PROXIES):
        return
    import socket  # a plan of what is at hand needs no network

    scheme, _, rest = (os.environ.get("HF_ENDPOINT") or ENDPOINT).partition("://")
    host, _, port = rest.partition("/")[0].partition(":")
    number = int(port) if port.isdigit() else 443 if scheme == "https" else 80
    try:
        socket.create_connection((host, number), timeout=SECONDS).close()
    except OSError as error:
        raise PlanError(
            Problem(
                f"the configuration of {name} is not kept here, and {host} cannot be reached: "
                f"{error.strerror or error}",
                where=name,
                fix="connect once, or name a config.json",
            )
        ) from error
