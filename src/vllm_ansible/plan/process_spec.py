"""What one process of an engine is, and in which order processes start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from vllm_ansible.node.process import process

HEAD, WORKER, SERVE = "head", "worker", "serve"
ORDER = (HEAD, WORKER, SERVE)


@dataclass(frozen=True)
class ProcessSpec:
    """One process of one engine on one host, as managed_process wants it."""

    host: str
    name: str
    engine: str
    part: str
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    depends: Mapping[str, Any]
    limits: Mapping[str, str]
    user: str | None
    # It serves on when the engine's other servers do not.
    alone: bool = False
    # Removes its container, before each start and after each end.
    cleanup: tuple[str, ...] = ()
    # Variables as earlier releases set them, None for what they did not set.
    formerly: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def order(self) -> int:
        """Return the step in which this process starts; it stops in the reverse order."""
        return ORDER.index(self.part)

    @property
    def digest(self) -> str:
        """Return the digest that the host records for this process."""
        return process.digest(process.spec(asdict(self)))

    def runs_as(self, digest: object) -> bool:
        """Tell whether a host's record is of this process, also as earlier releases started it."""
        own = asdict(self)
        return any(
            digest == process.digest(process.spec({**own, "environment": one}))
            for one in self._environments()
        )

    def _environments(self) -> list[dict[str, str]]:
        """Return the environment as it is, and as each of the earlier releases made it."""
        found = [dict(self.environment)]
        for name, value in self.formerly.items():
            for one in list(found):
                rest = {key: text for key, text in one.items() if key != name}
                found.append(rest if value is None else {**rest, name: value})
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return the process as roles loop over it."""
        lists = {"argv": list(self.argv), "cleanup": list(self.cleanup)}
        own = {name: value for name, value in asdict(self).items() if name != "formerly"}
        return {**own, **lists, "order": self.order, "digest": self.digest}
