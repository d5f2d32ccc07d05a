"""What a site's own lines, such as `module load cuda`, have set for all in an allocation."""

from __future__ import annotations

import re
from collections.abc import Mapping

# Set by the job's script: the names, apart by blanks, of what the lines have set or changed.
SITE = "VLLM_ANSIBLE_SITE"
# A shell's own, which change with every line.
OF_SHELLS = frozenset({"_", "OLDPWD", "PWD", "SHLVL"})
# An engine's environment is kept in files and told in reports.
SECRET = re.compile(r"token|secret|passw|_key$|credential", re.IGNORECASE)


def site_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that the site's lines have set; secrets go by file, not here."""
    names = environment.get(SITE, "").split()
    return {
        name: environment[name]
        for name in sorted(names)
        if name in environment and name not in OF_SHELLS and not SECRET.search(name)
    }
