"""The gate of wheels names who lacks one, and who has another."""

from __future__ import annotations

from typing import Any

from vllm_ansible.wheels.evidence import told, verdict

WHEEL = {"key": "k", "name": "answer", "revision": "0123456789abcdef"}
RECORD = {
    **WHEEL,
    **{"version": "1.0", "sha256": "f1", "size": 3, "python": "3.11", "cuda": ""},
    **{"system": "debian 12", "accelerator": "", "architecture": "x86_64", "seconds": 3.4},
}


def look(**record: Any) -> dict[str, Any]:
    present = {"k": {**RECORD, **record}} if record.pop("there", True) else {}
    return {"wheels": [WHEEL], "present": present, "places": {"k": "/c/wheels/k"}}


def shares(**hosts: dict[str, list[str]]) -> dict[str, Any]:
    empty: dict[str, list[str]] = {"builds": [], "takes": []}
    return {"hosts": {host: {**empty, **one} for host, one in hosts.items()}, "damaged": []}


def test_equal_wheels_pass_and_are_told_with_their_origin() -> None:
    looks = {"h1": look(), "h2": look()}
    assert verdict(looks) == []
    for share, origin in (
        (shares(h1={"builds": ["k"]}, h2={"takes": ["k"]}), "built on h1 in 3 s"),
        (shares(h1={}, h2={"takes": ["k"]}), "kept from an earlier build"),
        (shares(h1={}, h2={}), "there already"),
    ):
        found = told(looks, share)
        assert found["summary"] == f"answer 1.0 (0123456789ab): {origin}, on 2 host(s)"
        assert found["values"]["wheels"][0]["origin"] == origin


def test_what_was_damaged_is_told() -> None:
    found = told({"h1": look()}, {**shares(h1={}), "damaged": ["/c/k is cut"]})
    assert found["summary"].endswith("; built again: /c/k is cut")


def test_a_host_without_or_with_another_wheel_is_named() -> None:
    lacks, differs = verdict({"h1": look(), "h2": look(there=False), "h3": look(sha256="f2")})
    assert lacks.message == "h2 lacks the wheel of answer"
    assert differs.message == "h3 has another wheel of answer than h1"
    assert (differs.expected, differs.found, differs.where) == ("f1", "f2", "h3:/c/wheels/k")
