"""What makes an Enflame device unwell: the vendor's own word is that all of them are well.

The limits are those of the health check in the vendor's go-eflib (health.go), all but one of whose
parts are commented out, so that its exporter tells of no failing device: double-bit errors, a link
narrower than the device's widest, more than 95 degrees Celsius for 10 s.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Optional

HOT_DEGREES = 95
HOT_SECONDS = 10
Device = Mapping[str, Any]


def broken(device: Device) -> Iterator[str]:
    """Yield why the memory of a device, or the device itself, has to be replaced."""
    errors = device.get("ecc_errors") or {}
    if errors.get("double"):
        yield f"{errors['double']} double-bit errors"
    if device.get("double_bit_ever"):
        yield f"{device['double_bit_ever']:.0f} double-bit errors in its life"
    if device.get("replace"):
        yield "asks to be replaced (RMA)"
    if device.get("told_healthy") is False:
        yield "efsmi reports it as not healthy"


def narrow(device: Device) -> str:
    """Return how a link has fewer lanes than it can have; empty where it has not, or who knows."""
    link = device["link"]
    # A width of 0 is a link that is down, not one that is not told.
    if link["width"] is None or link["most_width"] is None or link["width"] >= link["most_width"]:
        return ""
    return f"x{link['width']:.0f} of x{link['most_width']:.0f}"


def hot(device: Device) -> Optional[bool]:
    """Return whether a device is too hot at this moment; None where its temperature is not told."""
    degrees = device["temperature"]
    return None if degrees is None else bool(degrees > HOT_DEGREES)
