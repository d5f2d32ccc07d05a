"""Lines of the kernel log as NVIDIA's driver writes them, and what each asks for."""

from __future__ import annotations

from pathlib import Path

import pytest

from vllm_ansible.node.accelerators.xid import (
    ACTIONS,
    CATALOG,
    classified,
    classify,
    log_errors,
    worst,
)

AT = "NVRM: Xid (PCI:0000:3b:00):"


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        (f"{AT} 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", "reboot"),
        (f"{AT} 48, pid=91, An uncorrectable double bit error (DBE) has been detected", "reset"),
        (f"{AT} 63, pid=1896, Row Remapper: New row marked for remapping", "watch"),
        (f"{AT} 64, pid=1896, Row Remapper: Error recording row remapping", "isolate"),
        (f"{AT} 94, pid=7, name=python, Contained: SM (0x1). RST: No, D-RST: No", "watch"),
        (f"{AT} 95, pid=7, name=python, Uncontained: LTC TAG (0x2,0x0)", "reset"),
        (f"{AT} 119, pid=7, name=python, Timeout after 6s of waiting for RPC response", "reset"),
        (f"{AT} 74, pid=7, NVLink: fatal error detected on link 3", "reset"),
        (f"{AT} 13, pid=7, name=python, Graphics Exception: ESR 0x505648=0x10009", "watch"),
        (f"{AT} 31, Ch 00000010, intr 10000000. MMU Fault", "watch"),
        (f"{AT} 54, pid=7, power", "isolate"),
        (f"{AT} 999, pid=7, something new", "watch"),
    ],
)
def test_a_line_becomes_a_verdict(line: str, verdict: str) -> None:
    found = classify(f"[12345.678] {line}")
    assert found is not None
    assert (found["pci"], found["verdict"]) == ("0000:3b:00", verdict)
    assert found["text"] in line


@pytest.mark.parametrize(
    ("recovery", "verdict"),
    [
        ("0x1 (GPU Reset Required)", "reset"),
        ("0x2 (Node Reboot Required)", "reboot"),
        ("0x3 (Drain P2P)", "isolate"),
        ("0x4 (Drain and Reset)", "reset"),
        ("0x0 (None)", "watch"),
    ],
)
def test_the_driver_says_itself_what_recovers(recovery: str, verdict: str) -> None:
    line = f"{AT} 154, GPU recovery action changed from 0x0 (None) to {recovery}"
    assert (classify(line) or {})["verdict"] == verdict


@pytest.mark.parametrize(("severity", "verdict"), [("Fatal", "reset"), ("Non-fatal", "watch")])
def test_errors_of_switches_are_told_by_their_severity(severity: str, verdict: str) -> None:
    line = f"nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, {severity}, Link 30 LTSSM Fault Up"
    found = classify(line) or {}
    assert (found["kind"], found["code"], found["verdict"]) == ("SXid", 20034, verdict)


def test_other_lines_say_nothing() -> None:
    assert classify("NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.159.04") is None


def test_every_action_of_the_catalog_has_a_verdict() -> None:
    assert {action for _, action in CATALOG.values()} <= set(ACTIONS)


def test_repeated_errors_are_counted_and_the_worst_is_named(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        f"6,811,9123456,-;{AT} 31, first; of two\n"
        "6,812,9123457,-;usb 1-1: new device\n"
        f"4,813,9123458,-;{AT} 31, second\n"
        f"4,814,9123459,-;{AT} 119, Timeout\n"
    )
    found = log_errors(str(log))
    seen = [(one["code"], one["times"], one["at"], one["text"]) for one in found["errors"]]
    assert seen == [(31, 2, 9.123458, "second"), (119, 1, 9.123459, "Timeout")]
    assert (found["readable"], found["verdict"]) == (True, "reset")
    assert worst(classified([])) is None


def test_a_log_that_may_not_be_read_is_said(tmp_path: Path) -> None:
    found = log_errors(str(tmp_path / "none"))
    assert found["readable"] is False
    assert found["why"].endswith("none: No such file or directory")
