"""The verdicts and rates as a textfile for Prometheus' node exporter, so that a timer can sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vllm_ansible.node.accelerators import prometheus

HELP = {
    "vllm_verify_accepted": "Whether the last verification let the cluster pass.",
    "vllm_verify_timestamp_seconds": "When it was done.",
    "vllm_verify_check": "A check: 1 for pass, 0.5 for warn, 0 for fail, NaN where skipped.",
    "vllm_verify_bus_bandwidth_bytes_per_second": "Bus bandwidth of an operation over all ranks.",
    "vllm_verify_pair_bytes_per_second": "What two hosts exchange, in each direction.",
    "vllm_verify_resent_ratio": "TCP segments sent again, of all sent, while measuring.",
}
VALUES = {"pass": "1", "accepted": "0", "warn": "0.5", "fail": "0", "skipped": "NaN"}
GB = 1e9


def textfile(
    cluster: str,
    accepted: bool,
    timestamp: float,
    rows: Sequence[Mapping[str, Any]],
    links: Mapping[str, Any],
) -> str:
    """Return the metrics of one verification in Prometheus' text format.

    rows: as vllm_ansible.verify.row.Row tells them; links: as collective_check documents.
    """
    found: dict[str, list[tuple[dict[str, str], str]]] = {
        "vllm_verify_accepted": [({}, str(int(accepted)))],
        "vllm_verify_timestamp_seconds": [({}, f"{timestamp:.0f}")],
        "vllm_verify_check": [
            ({"check": str(row["check"]), "where": str(row["where"])}, VALUES[row["verdict"]])
            for row in rows
        ],
        "vllm_verify_bus_bandwidth_bytes_per_second": [
            ({"operation": name}, f"{one['busbw'] * GB:.6g}")
            for name, one in links.get("across", {}).items()
        ],
        "vllm_verify_pair_bytes_per_second": [
            ({"first": pair["first"], "second": pair["second"]}, f"{pair['gbs'] * GB:.6g}")
            for pair in links.get("pairs", [])
        ],
        "vllm_verify_resent_ratio": [
            ({"host": host}, f"{part:.6g}") for host, part in links.get("retransmitted", {}).items()
        ],
    }
    of_cluster = {
        name: [({"cluster": cluster, **labels}, value) for labels, value in samples]
        for name, samples in found.items()
    }
    return prometheus.text(of_cluster, HELP)
