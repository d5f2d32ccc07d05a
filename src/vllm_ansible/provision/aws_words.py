"""What a person reads when AWS refuses, or says nothing."""

from __future__ import annotations

from typing import Any

from .aws_api import AwsError, Unreachable

CREDENTIALS = (
    "give this machine credentials as every tool of AWS reads them: aws configure, aws sso login, "
    "AWS_PROFILE or aws_profile, or a role of the machine"
)
QUOTA = (
    "ask for a larger quota in the console of Service Quotas, under Amazon EC2 (of running P "
    "instances, on demand or spot apart; it counts vCPUs), or lower node_count and spare_count"
)
SPEND = "settle it in the console of Billing, or with AWS Support, then run the same command again"
POLICY = (
    "have the action in `found` allowed for your user or role; docs/aws.md lists all that are used"
)
FIXES = {
    "AddressLimitExceeded": "ask for a larger quota of elastic addresses, release some, or set "
    "aws_public_address: false where this machine reaches the network of the subnet",
    "AuthFailure": CREDENTIALS,
    "Blocked": SPEND,
    "CredentialRetrievalError": CREDENTIALS,
    "ExpiredToken": CREDENTIALS,
    "IdempotentParameterMismatch": "run playbooks/orphans.yml, which shows what was launched, then "
    "the same command again",
    "InstanceLimitExceeded": QUOTA,
    "InvalidClientTokenId": CREDENTIALS,
    "MaxSpotInstanceCountExceeded": QUOTA,
    "NoCredentialsError": CREDENTIALS,
    "OptInRequired": "enable the region, or subscribe to the AMI, with this account",
    "PartialCredentialsError": CREDENTIALS,
    "PendingVerification": "wait for AWS to verify the account, then run the same command again",
    "ProfileNotFound": "correct aws_profile, or AWS_PROFILE",
    "RequestLimitExceeded": "stop what else asks the API with this account, then run the same "
    "command again",
    "SSOTokenLoadError": CREDENTIALS,
    "TokenRetrievalError": CREDENTIALS,
    "UnauthorizedOperation": POLICY,
    "AccessDeniedException": POLICY,
    "UnauthorizedSSOTokenError": CREDENTIALS,
    "Unsupported": "name types in aws_instance_types and zones in aws_zones that go together",
    "VcpuLimitExceeded": QUOTA,
}
# After these words comes a long text that only AWS can read.
ENCODED = "Encoded authorization failure message"


def words(error: Exception) -> dict[str, Any]:
    """Return the result of a task that met an error of AWS."""
    if isinstance(error, AwsError):
        return {
            "msg": f"AWS refused: {error.message.partition(ENCODED)[0].strip()}",
            "found": f"{error.code} in answer to {_action(error.operation)}",
            "fix": FIXES.get(error.code) or "correct the inventory",
        }
    assert isinstance(error, Unreachable)  # noqa: S101  there are two kinds
    return {
        "msg": "AWS gives no answer",
        "expected": "an answer within a minute",
        "found": str(error),
        "fix": "see aws_region, and that this machine reaches the internet; then run the same "
        "command again: what was launched is known by its tags",
    }


def _action(operation: str) -> str:
    """Return an operation as AWS writes it in policies."""
    return "".join(part.capitalize() for part in operation.split("_"))
