"""The program that runs a command of an Apptainer image as if it were installed on the host.

Apptainer is no boundary for processes, users or the network, so all else stays as it is: Ray's
nodes find each other, signals and exit statuses pass, and what a process starts is its child.
"""

from __future__ import annotations

import shlex

from ..accelerators.catalogue import host_platform

# By which name a command is asked for, all of one program.
NAMES = ("python", "vllm", "ray", "hf")
# Of this host's modules and shells. An image made from Docker's takes them in place of its own.
OF_THE_HOST = (
    *("CC", "CXX", "CUDACXX", "CUDA_HOME", "CUDA_PATH", "CUDA_ROOT", "LD_PRELOAD"),
    *("CONDA_PREFIX", "PYTHONHOME", "PYTHONPATH", "PYTHONSTARTUP", "VIRTUAL_ENV"),
)
# Inside: HOME and PATH are not taken over, and PYTHONPATH may be the image's own.
INSIDE = (
    'HOME=$1 PYTHONPATH=$2${PYTHONPATH:+:$PYTHONPATH}; export HOME PYTHONPATH; shift 2; exec "$@"'
)
TEXT = """\
#!/bin/sh
# Runs what it is called as, of an Apptainer image.
image={image}
packages={packages}
name=${{0##*/}}
[ "$name" != python ] || name=python3
for runtime in apptainer singularity ""; do
  [ -n "$runtime" ] || break
  ! command -v "$runtime" >/dev/null || break
done
[ -n "$runtime" ] || {{ echo "neither apptainer nor singularity is on PATH: $PATH" >&2; exit 127; }}
bind=
# A path of the host, unless one above it is shown: Apptainer needs no place for it then.
show() {{
  above=$1
  while [ -n "$above" ]; do
    case ",$bind," in *",$above,"*) return ;; esac
    case "$above" in */*) above=${{above%/*}} ;; *) above= ;; esac
  done
  case "$1" in
    / | /bin/* | /dev/* | /etc/* | /lib/* | /lib64/* | /proc/* | /sbin/* | /sys/* | /usr/*) ;;
    *[,:]*) ;;
    /*) [ ! -e "$1" ] || bind=$bind${{bind:+,}}$1 ;;
  esac
}}
for one in {binds} "$packages" "${{TMPDIR%/*}}" "${{TMPDIR:-}}" "${{ENGINE_BIND:-}}"; do
  show "$one"
done
# Weights may be links to files elsewhere, as in the hub's own cache: to where each leads by its
# words, which are followed inside, and to where that is.
weights=${{ENGINE_BIND:-}}
for one in ${{weights:+"$weights"/*}}; do
  [ -L "$one" ] || continue
  target=$(readlink -- "$one")
  case "$target" in /*) ;; *) target=$weights/$target ;; esac
  show "$(cd -- "${{target%/*}}/" 2>/dev/null && pwd)"
  show "$(dirname -- "$(readlink -f -- "$one")")"
done
# What it is told of, it is to see: such as the weights.
for one; do show "${{one#--*=}}"; done
unset {unset}
export PYTHONNOUSERSITE=1
# For the shell of the image.
# shellcheck disable=SC2016
set -- {inside} sh "${{HOME:-/}}" "$packages" "$name" "$@"
exec "$runtime" exec{flags} --bind "$bind" "$image" /bin/sh -c "$@"
"""


def program(image: str, packages: str, binds: str, accelerator: str) -> str:
    """Return its text; packages and binds are words of a shell, which say what comes from here."""
    kind = host_platform(accelerator)
    flag = kind.apptainer_option if kind else ""
    return TEXT.format(
        image=shlex.quote(image),
        packages=packages,
        binds=binds,
        unset=" ".join(OF_THE_HOST),
        flags=f" {flag}" if flag else "",
        inside=shlex.quote(INSIDE),
    )
