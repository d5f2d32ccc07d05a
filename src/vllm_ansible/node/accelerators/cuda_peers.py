"""Copy between the NVIDIA devices of a host, from each to each, and check what arrived."""

from __future__ import annotations

import time
from contextlib import ExitStack
from itertools import permutations
from typing import Any

from ..forked import Tell
from .cuda_driver import Driver, Session
from .cuda_measure import U32, U64, Device

PEER_BYTES = 256 << 20


def measure_peers(driver: Driver, indexes: list[int], seconds: float, tell: Tell) -> None:
    """Tell the rate of each ordered pair, `direct` where no host memory is in between."""
    pairs: list[dict[str, Any]] = []
    with ExitStack() as sessions:
        devices = [
            Device(sessions.enter_context(Session(driver, index)), PEER_BYTES, seconds)
            for index in indexes
        ]
        until = time.monotonic() + seconds
        for source, target in permutations(devices, 2):
            pair = {"source": source.session.index, "target": target.session.index}
            tell("stage", f"device {pair['source']} to device {pair['target']}")
            late = time.monotonic() > until
            figures = (
                {"skipped": f"{seconds:g} seconds were over"} if late else _pair(source, target)
            )
            pairs.append({**pair, **figures})
            tell("pairs", pairs)


def _pair(source: Device, target: Device) -> dict[str, Any]:
    driver, seed = source.session.driver, 1 + source.session.index
    handles = source.session.handle, target.session.handle
    direct = bool(driver.number("cuDeviceCanAccessPeer", *handles))
    size = min(source.size, target.size)
    target.session.use()
    driver.call("cuMemsetD8_v2", target.memory, 0, target.size)
    driver.call("cuCtxSynchronize")
    source.session.use()
    if direct:
        # Refused where it is enabled already, or without harm: the copy then takes another way.
        driver.code("cuCtxEnablePeerAccess", target.session.context, 0)
    source.pattern(source.fill, seed)

    def copy() -> None:
        contexts = target.session.context, source.session.context
        driver.call(
            "cuMemcpyPeerAsync", target.memory, contexts[0], source.memory, contexts[1], size, None
        )

    rate = source.rate(copy, size)
    target.session.use()
    arguments = (U64(target.memory), U64(size // 4), U32(seed), U32(0))
    wrong, _, _ = target.compared(target.check, *arguments)
    return {"direct": direct, "gb_per_s": round(rate / 1e9, 1), "wrong_words": wrong}
