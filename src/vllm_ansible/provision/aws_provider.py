"""AWS, for whoever knows it by its name alone."""

from __future__ import annotations

from .aws_api import AwsError, Unreachable
from .aws_cluster import AwsCluster
from .aws_reading import READ, settings
from .aws_types import devices_of
from .aws_words import words
from .provider import Provider

PROVIDER = Provider(
    name="aws",
    title="AWS",
    read=READ,
    settings=settings,
    cluster=AwsCluster,
    errors=(AwsError, Unreachable),
    refusal=words,
    devices_of=devices_of,
    user="ubuntu",
    places="aws_zones",
    kept=lambda _: "what was made for them went with them",
    together=True,
    notices=True,
    ends_itself=True,
    login="that ssh has the key that aws_ssh_key_name or aws_ssh_public_key_file names, and that "
    "aws_ssh_from, or the security group that is given, holds this machine's address",
)
