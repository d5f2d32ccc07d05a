"""What a cloud is to everything outside its own files, and which clouds there are.

Adding one is a module here with a `PROVIDER`, one in `givers/` that names it, an inventory plugin
and an inventory. A module is imported when its name is asked for: what it needs to
speak to its cloud is of no concern to others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from .giver import givers


class Settings(Protocol):
    """What every provider's settings have: prices in US cents an hour, times in seconds."""

    @property
    def cluster(self) -> str:
        """Name of the cluster."""

    @property
    def count(self) -> int:
        """Machines that serve."""

    @property
    def spares(self) -> int:
        """Machines beside them."""

    @property
    def types(self) -> tuple[str, ...]:
        """Types of machines, in order of preference."""

    @property
    def adopt(self) -> bool:
        """Whether machines that somebody else has rented may be worked on."""

    @property
    def owner(self) -> str:
        """Who rents, as tags say it; empty for the user and name of this machine."""

    @property
    def max_cents_per_hour(self) -> int | None:
        """What all machines may cost together; None is no limit."""

    @property
    def max_cents(self) -> int | None:
        """What they may cost from the first launch to the last end."""

    @property
    def max_seconds(self) -> float | None:
        """How long they may be rented.

        Beside the process that watches, machines of a cloud with `ends_itself` end themselves;
        the API of no cloud here takes the end of a machine that is paid for by the hour.
        """

    def pinned(self) -> Mapping[str, str]:
        """Return the variables that mean the same from any directory, for whoever watches."""

    def ready(self) -> None:
        """Raise PlanError where what the provider is asked with cannot be read; asks nobody."""


@dataclass(frozen=True, slots=True)
class Provider:
    """A cloud that rents machines.

    `name` is what `provision_provider` says and what its variables and files begin with; `title` is
    what people call it. `read` names all inventory variables that it reads. `refusal` turns one of
    its `errors` into the result of a task. `together` says that one launch starts several machines,
    all of them or none. `notices` says that hosts look for a notice of their end and drain their
    engines then. `ends_itself` says that a machine which powers itself off is ended, and no longer
    paid for. `places` is the variable that says where machines may be. `kept` says of the
    surroundings, once they were removed, what stays. `variables` are those that all of its hosts
    have. `prices` returns US cents an hour by type, asked with a key at an endpoint (empty: its
    own); None where its API tells none. `login` is what to look at where no machine lets this side
    in, `reach` where one does not answer; without them, the provider's variables
    `<name>_ssh_key_name` and `<name>_ssh_from`.
    """

    name: str
    title: str
    read: tuple[str, ...]
    settings: Callable[[Mapping[str, Any], str], Settings]
    # Makes a `cluster.Cluster`, which itself is given these settings.
    cluster: Callable[[Any, Path], Any]
    errors: tuple[type[Exception], ...]
    refusal: Callable[[Exception], dict[str, Any]]
    devices_of: Callable[[str], tuple[int, str] | None]
    user: str
    places: str
    kept: Callable[[Any], str] = lambda _: ""
    together: bool = False
    notices: bool = False
    ends_itself: bool = False
    variables: Callable[[Settings], Mapping[str, Any]] = lambda _: {}
    # Machines beside the cluster, each by its group with its slot.
    parts: Callable[[Any], Mapping[str, int]] = lambda _: {}
    prices: Callable[[str, str], Mapping[str, int]] | None = None
    login: str = ""
    reach: str = ""


def provider(name: str) -> Provider:
    """Return a provider by its name; raise KeyError for one that there is none of."""
    module = givers()[name].module
    if not module:
        raise KeyError(name)
    found = import_module(f".{module}", __package__).PROVIDER
    assert isinstance(found, Provider)  # noqa: S101  a module of this package
    return found
