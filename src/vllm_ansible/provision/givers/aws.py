"""AWS, which rents instances of EC2."""

from __future__ import annotations

import os

from ..giver import Giver


def credentials() -> tuple[str, ...]:
    """Return the file that holds keys of AWS for whoever runs this."""
    return (os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials",)


GIVER = Giver(
    name="aws",
    gives="machines at AWS",
    module="aws_provider",
    notices=True,
    secret_variables=("AWS",),
    credentials=credentials,
)
