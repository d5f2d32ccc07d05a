"""Where an engine's environment lies on a host, whether it is complete, and what there is to do."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..build_command import BuildError, Report
from . import (
    build as environment,
)
from . import (
    given_environment,
    given_image,
    own_wheels,
    packed_environment,
    shared_environment,
)

TREE = "tree"
Work = Callable[[dict[str, Any], Report], dict[str, Any]]


def complete(wanted: dict[str, Any]) -> dict[str, Any]:
    """Add to what a module is asked for whatever it leaves open, and return that."""
    shared = wanted["shared_dir"] or ""
    packs = bool(shared) and wanted["form"] != TREE
    base = shared if shared and not packs else wanted["cluster_dir"]
    place = environment.directory(base, wanted["digest"])
    record = packed_environment.record_path(shared, place, wanted["form"]) if packs else ""
    return {
        **wanted,
        "directory": str(place),
        "record": str(record),
        "requirements": wanted["requirements"] or f"{place}.txt",
        "uv": wanted["uv"] or os.path.join(wanted["cluster_dir"], "tools/bin/uv"),
        "built": own_wheels.digests(wanted["cluster_dir"], wanted["wheels"]),
    }


def look(wanted: dict[str, Any]) -> dict[str, Any]:
    """Return what environment.look does, and more; a few directory reads.

    built: it is there as it was built. complete: and counts on this host. shared: what other hosts
    are to take is there.
    """
    found = environment.look(Path(wanted["directory"]), wanted["digest"], wanted["built"])
    built = found["complete"]
    if wanted["record"]:
        built = packed_environment.is_there(wanted)
        shared = bool(packed_environment.record_of(Path(wanted["record"]), wanted["built"]))
    else:
        shared = built
    counts = built and (
        not wanted["shared_dir"]
        or shared_environment.proven(wanted["cluster_dir"], wanted["digest"], found["manifest"])
    )
    return {**found, "built": built, "complete": counts, "shared": shared}


def changes(wanted: dict[str, Any], found: dict[str, Any]) -> bool:
    """Tell whether there is anything to do; the host that builds sees to what others take."""
    lacking = bool(wanted["record"]) and not found["shared"]
    return {
        "present": not found["complete"] or lacking,
        "proven": not found["complete"],
    }.get(wanted["state"], False)


def work(wanted: dict[str, Any], found: dict[str, Any]) -> Work:
    """Return what is to be done, begun already where that cannot wait.

    Raises BuildError where it is known to go wrong.
    """
    if wanted["record"]:
        return _packed(wanted, found)
    if found["built"]:
        return shared_environment.prove
    if wanted["state"] == "proven":
        said = shared_environment.why_not(Path(wanted["directory"]), found["manifest"])
        raise BuildError(said.pop("msg"), **said)
    refuse(wanted)
    return shared_environment.build if wanted["shared_dir"] else environment.build


def _packed(wanted: dict[str, Any], found: dict[str, Any]) -> Work:
    record = packed_environment.record_of(Path(wanted["record"]), wanted["built"])
    if wanted["given"] and wanted["state"] == "present" and found["drift"]:
        # What changed lies outside of the pack, which is then of what was given before.
        record = {}
    try:
        if not record:
            said = packed_environment.why_not(wanted)
            raise BuildError(said.pop("msg"), **said)
        packed_environment.begin(wanted, record)
    except BuildError:
        # The host that builds makes what it cannot take.
        if wanted["state"] == "proven":
            raise
    else:
        return packed_environment.take
    if lacks := packed_environment.missing_tools(wanted["form"]):
        raise BuildError(
            f"the environment cannot be packed without {' and '.join(lacks)}",
            expected=f"{', '.join(packed_environment.TOOLS[wanted['form']])} on this host",
            found=f"no {', '.join(lacks)}",
            where=wanted["cluster_dir"],
            fix="install squashfs-tools here, or say environment_shared_form: copy"
            if wanted["form"] == "image"
            else "install it here",
        )
    if not found["built"]:
        refuse(wanted)
    return packed_environment.build


def refuse(wanted: dict[str, Any]) -> None:
    """Raise BuildError with what keeps the environment from being built."""
    if wanted["given"]:
        kind = given_image if given_image.is_image(wanted["given"]) else given_environment
        kind.expect(wanted["given"], wanted["user"])
    for name, fix in (
        ("uv", "run the stage prepare, which makes the cluster's tools"),
        ("requirements", "copy the lock there first"),
    ):
        if not os.path.exists(wanted[name]) and not (wanted["given"] and name == "requirements"):
            raise BuildError(
                f"the environment cannot be built without {wanted[name]}",
                expected=f"a file {wanted[name]}",
                found="no such file",
                where=wanted[name],
                fix=fix,
            )
