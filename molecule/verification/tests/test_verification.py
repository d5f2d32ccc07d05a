"""The evidence lies on the head, for the next run, for the planner and for Prometheus."""

import json

from testinfra.host import Host


def on_head(host: Host) -> bool:
    return bool(host.backend.get_hostname() == "lab1")


def test_the_evidence_is_kept_on_the_head_alone(host: Host, cluster_dir: str) -> None:
    path = host.file(f"{cluster_dir}/evidence/verify.json")
    if not on_head(host):
        assert not path.exists
        return
    kept = json.loads(path.content_string)
    assert kept["accepted"]
    assert kept["baseline"] == kept["links"]
    assert kept["links"]["across"]["all_reduce"]["busbw"] > 0
    assert {"results", "bandwidth", "links", "resent"} <= {row["check"] for row in kept["rows"]}
    assert any("reach each other on every port" in words for words in kept["summaries"])


def test_prometheus_can_read_it(host: Host, cluster_dir: str) -> None:
    if not on_head(host):
        return
    text = host.file(f"{cluster_dir}/evidence/vllm_molecule.prom").content_string
    assert 'vllm_verify_accepted{cluster="molecule"} 1\n' in text
    assert (
        'vllm_verify_pair_bytes_per_second{cluster="molecule",first="lab1",second="lab2"}' in text
    )
    for line in text.splitlines():
        assert line.startswith(("#", "vllm_verify_")), line
