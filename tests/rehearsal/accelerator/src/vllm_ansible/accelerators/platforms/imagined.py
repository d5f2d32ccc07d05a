"""An accelerator that nobody makes."""

from __future__ import annotations

from ..platform import Platform

PLATFORM = Platform(
    name="imagined",
    title="Imagined",
    software="imagined",
    visible_devices="IMAGINED_VISIBLE_DEVICES",
    lock=lambda _: "imagined",
    locks={"imagined": ("3.12",)},
    driver_role="imagined_driver",
    collectives="none",
    no_dynamo="an engine that is imagined",
)
