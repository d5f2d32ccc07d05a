"""Lambda's cloud, for whoever knows it by its name alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from .clock import Clock
from .lambda_api import ENDPOINT, INTERVALS, ApiError, LambdaApi
from .lambda_cluster import LambdaCluster
from .lambda_settings import READ, devices_of, settings
from .lambda_words import words
from .provider import Provider
from .transport import Unreachable


def prices(key: str, endpoint: str) -> Mapping[str, int]:
    """Return US cents an hour of each type."""
    with TemporaryDirectory() as place:
        api = LambdaApi(key, Clock(Path(place) / "clock", INTERVALS), endpoint or ENDPOINT)
        listed = api.instance_types()
    return {name: int(one["instance_type"]["price_cents_per_hour"]) for name, one in listed.items()}


PROVIDER = Provider(
    name="lambda",
    title="Lambda",
    read=READ,
    settings=settings,
    cluster=LambdaCluster,
    errors=(ApiError, Unreachable),
    refusal=words,
    devices_of=devices_of,
    user="ubuntu",
    places="lambda_regions",
    kept=lambda _: "file systems are kept",
    prices=prices,
)
