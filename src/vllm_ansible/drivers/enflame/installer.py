"""Enflame's installers by the names of their files, and what each is started with.

TopsPlatform and TopsRider carry the host's driver beside much else; a file named
enflame-x86_64-gcc-VERSION-DATE.run is the driver alone, as the vendor's images hold it under
/enflame/driver. The options are those of the vendor's own instructions: vllm-gcu (README,
tests/install_driver.sh), PaddlePaddle's and FlagTree's installation guides.
"""

from __future__ import annotations

import re

from vllm_ansible.problem import PlanError, Problem

DRIVER_ALONE = re.compile(r"enflame-x86_64-gcc-(\d+(?:\.\d+)+)-\d+\.run")


def arguments(name: str, peer_memory: bool) -> list[str]:
    """Return the options that install the host's driver from a file of this name.

    Raises PlanError for a name of no installer that is known.
    """
    if name.startswith("TopsPlatform_"):
        return ["--no-auto-load", *(["--peermem"] if peer_memory else []), "-y"]
    if name.startswith("TopsRider_"):
        return ["--driver", "--no-auto-load", "-y"]
    if name.startswith("enflame-"):
        return ["-y"]
    raise PlanError(
        Problem(
            f"{name} is not an installer of Enflame's whose options are known",
            expected="TopsPlatform_*.run, TopsRider_*.run or enflame-x86_64*.run",
            found=name,
            where="enflame_driver_file",
            fix="give the vendor's own file, or say its options in enflame_driver_arguments",
        )
    )


def known(version: str) -> str:
    """Return a version that others can be compared with. Raises PlanError for what is none."""
    if not version or re.fullmatch(r"\d+(\.\d+)*", version):
        return version
    raise PlanError(
        Problem(
            f"{version} is not a version of Enflame's driver",
            expected="numbers between dots, as 1.7.2.14",
            found=version,
            where="enflame_driver_version",
            fix="give it as `cat /sys/module/enflame/version` does",
        )
    )


def version_of(name: str) -> str:
    """Return the driver's version where the file's name tells it; TopsPlatform's does not."""
    found = DRIVER_ALONE.fullmatch(name)
    return found[1] if found else ""
