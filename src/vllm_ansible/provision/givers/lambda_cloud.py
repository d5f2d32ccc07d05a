"""Lambda, which rents instances."""

from __future__ import annotations

from ..giver import Giver

GIVER = Giver(
    name="lambda",
    gives="machines at Lambda",
    module="lambda_provider",
    secret_files=("lambda_api_key_file",),
    secret_variables=("LAMBDA",),
)
