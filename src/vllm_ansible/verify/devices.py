"""Judge what the accelerators of all hosts did: right results, and rates beside spec and peers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from statistics import median
from typing import Any

from vllm_ansible.accelerators.accelerator import accelerator
from vllm_ansible.problem import PlanError
from vllm_ansible.verify.row import FAIL, PASS, WARN, Row

# An H200 reads 0.90 of what its data sheet promises (tests/data/h200-probe.json).
LEAST_OF_SPEC = 0.75
# Cards of one kind under one load: a run on four H200 varied by 2 %; heat takes some more.
LEAST_OF_PEERS = 0.85
# A link of half the lanes, or of the generation before, has half the rate.
LEAST_OF_LINK = 0.55
RATES = (
    ("matmul_fp32", "tflops", "TFLOP/s in fp32"),
    ("matmul_bf16", "tflops", "TFLOP/s in bf16"),
    ("bandwidth", "read_gb_per_s", "GB/s of memory"),
    ("host_link", "to_device_gb_per_s", "GB/s from the host"),
    ("host_link", "to_host_gb_per_s", "GB/s to the host"),
)
GB = 1e9
MEND = "reset the device or reboot the host; what comes back is a case for its vendor"
COPY_FIX = (
    "see the links between the two (`nvidia-smi topo -m`, `nvidia-smi nvlink -s`) and, where "
    "copies go over PCIe, that ACS and the IOMMU let them pass; " + MEND
)
Device = Mapping[str, Any]


def judge(
    probes: Mapping[str, Mapping[str, Any]],
    accelerators: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[Row]:
    """Return the rows of all devices; probes: by host, as library/accelerator_probe.py tells."""
    devices = [
        (f"{host}:{one['index']}", one)
        for host, probe in probes.items()
        for one in probe["devices"]
    ]
    rows = [row for where, one in devices for row in _alone(where, one, accelerators)]
    rows += _beside([(where, one) for where, one in devices if "error" not in one])
    rows += [row for host, probe in probes.items() for row in _copies(host, probe)]
    return rows + [_log(host, probe["kernel_log"]) for host, probe in probes.items()]


def summary(probes: Mapping[str, Mapping[str, Any]]) -> str:
    """Return what was measured in one line."""
    devices = [one for probe in probes.values() for one in probe["devices"]]
    kinds = ", ".join(sorted({str(one["name"]) for one in devices}))
    told = [
        f"{median(rates):.4g} {words}"
        for name, key, words in RATES[1:4]
        if (rates := [float(one[name][key]) for one in devices if key in one.get(name, {})])
    ]
    return f"{len(devices)} x {kinds}" + (": median of " + ", ".join(told) if told else "")


def _alone(
    where: str, device: Device, own: Mapping[str, Mapping[str, Any]] | None
) -> Iterator[Row]:
    """Yield the rows of one device that need no other."""
    name = str(device["name"])
    if "error" in device:
        failed = f"{device['error']} while {device.get('stage', 'starting')}"
        yield Row("computes", where, FAIL, f"{name} computing", "every measurement", failed, MEND)
        return
    wrong = _wrong(device)
    verdict = FAIL if wrong else PASS
    told = "; ".join(wrong) or "every result is right"
    yield Row("computes", where, verdict, f"what {name} computes", "exact results", told, MEND)
    try:
        kind = accelerator(name, own)
    except PlanError:
        return
    memory, link = kind.bandwidth / GB, kind.host_link / GB
    fix = "see its clocks, temperature and power (`nvidia-smi -q -d PERFORMANCE`), then its ECC"
    yield _least("memory_rate", where, device, "bandwidth", RATES[2], memory, LEAST_OF_SPEC, fix)
    fix = "see the link's width and speed (`lspci -vv`), and that its slot is the right one"
    for rate in RATES[3:]:
        yield _least("host_link", where, device, "host_link", rate, link, LEAST_OF_LINK, fix)


def _least(
    check: str,
    where: str,
    device: Device,
    name: str,
    rate: tuple[str, str, str],
    spec: float,
    share: float,
    fix: str,
) -> Row:
    found = device.get(name, {}).get(rate[1])
    expected = f"at least {share * spec:.4g} {rate[2]}, {share:.0%} of its data sheet"
    if found is None:
        told = str(device.get(name, {}).get("skipped", "not measured"))
        return Row(check, where, WARN, rate[2], expected, told, "give the probe more time")
    verdict = PASS if found >= share * spec else FAIL
    return Row(check, where, verdict, rate[2], expected, f"{found:.4g}", fix)


def _wrong(device: Device) -> list[str]:
    """Return what a device got wrong."""
    found = []
    if device.get("memory", {}).get("wrong_words"):
        found.append(f"{device['memory']['wrong_words']} words of memory came back changed")
    if device.get("memory", {}).get("planted_bit_found") is False:
        found.append("its memory test does not see a bit that was turned on purpose")
    for name in ("matmul_fp32", "matmul_bf16"):
        if device.get(name, {}).get("wrong_elements"):
            found.append(f"{device[name]['wrong_elements']} elements of {name} are wrong")
    found += [
        f"{name} gave other bytes back"
        for name in ("bandwidth", "host_link")
        if device.get(name, {}).get("exact") is False
    ]
    return found


def _beside(devices: Sequence[tuple[str, Device]]) -> Iterator[Row]:
    """Yield the rows of devices beside others of the same name; alone there is no measure."""
    for kind in sorted({str(one["name"]) for _, one in devices}):
        same = [(where, one) for where, one in devices if one["name"] == kind]
        for name, key, words in RATES[:3]:
            rates = {where: one[name][key] for where, one in same if key in one.get(name, {})}
            if len(rates) < 2:
                continue
            usual = median(rates.values())
            slow = {where: rate for where, rate in rates.items() if rate < LEAST_OF_PEERS * usual}
            expected = (
                f"at least {LEAST_OF_PEERS * usual:.4g} {words}, {LEAST_OF_PEERS:.0%} of the median"
            )
            what = f"{words} beside {len(rates)} {kind}"
            if not slow:
                least = min(rates.values())
                yield Row("peers", "all hosts", PASS, what, expected, f"{least:.4g}")
            for where, rate in slow.items():
                fix = f"see why {where} throttles: heat, power cap, ECC (`nvidia-smi -q`)"
                yield Row("peers", where, FAIL, what, expected, f"{rate:.4g}", fix)


def _copies(host: str, probe: Mapping[str, Any]) -> Iterator[Row]:
    """Yield the rows on copies from device to device: each ordered pair that computes is owed."""
    sound = [one["index"] for one in probe["devices"] if "error" not in one]
    owed = set(permutations(sound, 2))
    if not owed:
        return
    peers = probe.get("peers", {})
    pairs = {(one["source"], one["target"]): one for one in peers.get("pairs", [])}
    what, expected = "copies from device to device", "every word as it was sent, of each pair"
    wrong = {pair: one for pair, one in pairs.items() if one.get("wrong_words")}
    for (source, target), one in wrong.items():
        where, found = f"{host}:{source}-{target}", f"{one['wrong_words']} words came changed"
        yield Row("copies", where, FAIL, what, expected, found, COPY_FIX)
    missing = sorted(owed - set(pairs))
    if "error" in peers or missing:
        named = "; ".join(f"device {source} to device {target}" for source, target in missing[:3])
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        lost = f"not measured: {named}{more}" if missing else ""
        failed = f"{peers['error']} at {peers.get('stage', 'start')}" if "error" in peers else ""
        found = "; ".join(part for part in (failed, lost) if part)
        yield Row("copies", host, FAIL, what, expected, found, COPY_FIX)
        return
    late = [pair for pair, one in pairs.items() if "wrong_words" not in one]
    if late:
        reason = pairs[late[0]].get("skipped", "not measured")
        found = f"{len(late)} of {len(owed)} pairs not measured: {reason}"
        yield Row("copies", host, WARN, what, expected, found, "give the probe more time")
    elif not wrong:
        found = f"{len(owed)} pairs are right"
        yield Row("copies", host, PASS, what, expected, found)


def _log(host: str, log: Mapping[str, Any]) -> Row:
    """Return the row on the errors that the driver wrote into the kernel's log."""
    what = "errors of accelerators in the kernel's log"
    if not log["readable"]:
        fix = "let the login read the kernel's log (root, or kernel.dmesg_restrict=0)"
        return Row("kernel_log", host, WARN, what, "none", "the log cannot be read", fix)
    asked = log["verdict"]
    told = "; ".join(str(one.get("line", one)) for one in log["errors"][:3]) or "none"
    verdict = PASS if not asked else WARN if asked == "watch" else FAIL
    return Row("kernel_log", host, verdict, what, "none", told, f"what they ask for: {asked}")
