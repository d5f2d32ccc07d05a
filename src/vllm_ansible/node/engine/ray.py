"""Ask the dashboard of a Ray head which nodes it knows, with the standard library."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from typing import Any

from .http_answer import open_request

# GET /api/v0/nodes of Ray's state API; the Python client would cost two seconds of imports a look.
NODES_PATH = "/api/v0/nodes?limit=10000"


def parse_nodes(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """Return address, state, devices and message of every node in a state API answer.

    devices is what the node offers under the resource name `GPU`, which vLLM counts, whatever
    the accelerator is.
    """
    return [
        {
            "address": node["node_ip"],
            "alive": node["state"] == "ALIVE",
            "head": bool(node.get("is_head_node")),
            "devices": int((node.get("resources_total") or {}).get("GPU", 0)),
            "message": node.get("state_message") or "",
        }
        for node in answer["data"]["result"]["result"]
    ]


def ask_nodes(dashboard_port: int, token: str, timeout: float = 10) -> dict[str, Any]:
    """Return `nodes`, or `error` with why the head did not answer; never raises for the network."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{dashboard_port}{NODES_PATH}",
        headers={"Authorization": f"Bearer {token}"},
    )
    try:
        with open_request(request, timeout) as response:
            return {"nodes": parse_nodes(json.load(response)), "error": ""}
    except urllib.error.HTTPError as error:
        reason = "the Ray token was refused" if error.code in (401, 403) else error.reason
        return {"nodes": [], "error": f"HTTP {error.code}: {reason}"}
    except (OSError, http.client.HTTPException, LookupError, ValueError, TypeError) as error:
        return {"nodes": [], "error": f"{type(error).__name__}: {error}"}


def missing(
    expected: dict[str, dict[str, Any]], nodes: list[dict[str, Any]]
) -> list[dict[str, str]]:
    """Return each planned host that Ray does not count as planned, with why.

    expected maps a host's name to its planned `address` and number of `devices`.
    """
    alive = {node["address"]: node for node in nodes if node["alive"]}
    dead = {node["address"]: node for node in nodes if not node["alive"]}
    strangers = sorted(set(alive) - {host["address"] for host in expected.values()})
    found = []
    for name, host in expected.items():
        node = alive.get(host["address"])
        if node and node["devices"] >= host["devices"]:
            continue
        if node:
            why = f"joined with {node['devices']} devices, {host['devices']} are planned"
        elif host["address"] in dead:
            why = f"joined and died: {dead[host['address']]['message'] or 'no reason given'}"
        elif strangers:
            why = (
                f"nothing joined from {host['address']}; joined from addresses that are "
                f"not planned: {', '.join(strangers)}"
            )
        else:
            why = f"nothing joined from {host['address']}"
        found.append({"host": name, "why": why})
    return found
