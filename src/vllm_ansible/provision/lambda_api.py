"""Lambda's cloud API, version 1.10.0, as far as machines are rented with it.

One request a second and one launch every twelve, for all of our processes together. What was
refused for coming too often is asked again after the wait that the answer names; what failed on
the way is asked again where that can do no harm. A launch whose answer was lost is not: whether it
was carried out only the list of instances can tell (`ReplyLost`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from .fleet import ReplyLost
from .transport import Answer, Api, Refused, strange

ENDPOINT = "https://cloud.lambda.ai/api/v1"
INTERVALS = {"request": 1.0, "launch": 12.0}

NO_CAPACITY = "instance-operations/launch/insufficient-capacity"
BAD_KEY = "global/invalid-api-key"
QUOTA = "global/quota-exceeded"
NOT_FOUND = "global/object-does-not-exist"
INTERNAL = "global/internal-error"
CROWDED = "too-many-requests"
# Something behind the API failed; documented as worth another try.
PROVIDER = "provider/"


class ApiError(Refused):
    """Lambda refused, in its own words."""

    def __init__(self, status: int, code: str, message: str, suggestion: str = "") -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.suggestion = status, code, message, suggestion

    @property
    def passes(self) -> bool:
        """Tell whether the same request may be answered later."""
        return self.status >= 500 or self.code == INTERNAL or self.code.startswith(PROVIDER)


class LambdaApi(Api):
    """Requests in their turn, each answered with its data or with one kind of error."""

    def instances(self) -> list[dict[str, Any]]:
        """Return all instances of the account, those that are ending included."""
        return list(self._ask("GET", "/instances"))

    def instance_types(self) -> dict[str, dict[str, Any]]:
        """Return type, price and regions with capacity, by the type's name."""
        return dict(self._ask("GET", "/instance-types"))

    def regions(self) -> list[str]:
        """Return the names of all regions, whether there is room in them or not."""
        return [str(one["name"]) for one in self._ask("GET", "/regions")]

    def file_systems(self) -> list[dict[str, Any]]:
        """Return the file systems of the account."""
        return list(self._ask("GET", "/file-systems"))

    def ssh_keys(self) -> list[dict[str, Any]]:
        """Return the public keys that instances can be given."""
        return list(self._ask("GET", "/ssh-keys"))

    def rulesets(self) -> list[dict[str, Any]]:
        """Return the firewall rulesets."""
        return list(self._ask("GET", "/firewall-rulesets"))

    def launch(self, wanted: Mapping[str, Any]) -> str:
        """Launch one instance and return its id."""
        data = self._ask("POST", "/instance-operations/launch", wanted, ("request", "launch"))
        if len(data["instance_ids"]) != 1:
            raise ReplyLost(f"a launch was answered with {data['instance_ids']}")
        return str(data["instance_ids"][0])

    def terminate(self, instances: Sequence[str]) -> list[str]:
        """End instances; return the ids of those that are ending."""
        wanted = {"instance_ids": list(instances)}
        data = self._ask("POST", "/instance-operations/terminate", wanted)
        return [str(one["id"]) for one in data["terminated_instances"]]

    def rename(self, instance: str, name: str) -> None:
        """Give an instance another name."""
        self._ask("POST", f"/instances/{instance}", {"name": name})

    def create_file_system(self, name: str, region: str) -> dict[str, Any]:
        """Create a file system."""
        return dict(self._ask("POST", "/filesystems", {"name": name, "region": region}))

    def delete_file_system(self, identity: str) -> None:
        """Delete a file system and all that is in it."""
        self._ask("DELETE", f"/filesystems/{identity}")

    def create_ruleset(
        self, name: str, region: str, rules: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Create a firewall ruleset."""
        wanted = {"name": name, "region": region, "rules": [dict(rule) for rule in rules]}
        return dict(self._ask("POST", "/firewall-rulesets", wanted))

    def change_ruleset(self, identity: str, rules: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Give a firewall ruleset these rules and no others."""
        wanted = {"rules": [dict(rule) for rule in rules]}
        return dict(self._ask("PATCH", f"/firewall-rulesets/{identity}", wanted))

    def delete_ruleset(self, identity: str) -> None:
        """Delete a firewall ruleset that no instance uses."""
        self._ask("DELETE", f"/firewall-rulesets/{identity}")

    def _data(self, answer: Answer) -> Any:
        """Return the data of an answer, or raise what it refuses with."""
        try:
            content = json.loads(answer.body)
            if answer.status < 300:
                return content["data"]
            error = content["error"]
            code, message = str(error["code"]), str(error["message"])
            suggestion = error.get("suggestion") or ""
        except (ValueError, KeyError, TypeError) as failure:
            raise strange(answer) from failure
        raise ApiError(answer.status, code, message, suggestion)

    def _crowded(self, answer: Answer, held: float) -> ApiError:
        """Return the refusal of a key that something else uses all the time."""
        message = f"too many requests for {held:.0f} s, all of ours being waits"
        return ApiError(answer.status, CROWDED, message)
