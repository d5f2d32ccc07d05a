"""Lambda's cloud, for whoever knows it by its name alone."""

from __future__ import annotations

from .lambda_api import ApiError
from .lambda_cluster import LambdaCluster
from .lambda_settings import READ, devices_of, settings
from .lambda_words import words
from .provider import Provider
from .transport import Unreachable

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
    kept="; file systems are kept",
)
