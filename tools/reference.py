"""Write docs/variables.md from the roles' argument specs, docs/symptoms.md from the signatures.

docs/support.md comes from docs/evidence.md, the systems that the code accepts, and tests/data.
`make reference` runs it; `tests/test_docs.py` fails while a page is not what it would write.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from vllm_ansible.inventory.site_host import ARCHITECTURES, SUPPORTED
from vllm_ansible.record.diagnosis.match import Signature, signatures

ROOT = Path(__file__).resolve().parents[1]
SIGNATURES = ROOT / "src/vllm_ansible/record/diagnosis/signatures"
# What the specs say of variables that are no options: others set them.
PLUMBING = re.compile(r"\bSet by the inventory plugin\b|\bThe stage \w+ gives (?:it|them)\b")
# Variables of a role that share a first word have a table of their own from so many on.
FAMILY = 5
MOST_SAMPLE = 160
# As many as a report names.
MOST_THREADS = 4
# Projects that signatures name without their owner.
OWNERS = {
    **dict.fromkeys(
        ["vllm", "production-stack", "recipes", "vllm-ascend", "vllm-omni"], "vllm-project"
    ),
    **dict.fromkeys(["nccl", "nccl-tests", "pyxis", "TensorRT-LLM"], "NVIDIA"),
    **dict.fromkeys(
        ["nvidia-container-toolkit", "open-gpu-kernel-modules", "gpu-operator"], "NVIDIA"
    ),
    **dict.fromkeys(["huggingface_hub", "transformers", "datasets", "open-r1"], "huggingface"),
    **dict.fromkeys(["ray", "kuberay"], "ray-project"),
    **dict.fromkeys(["dynamo", "nixl"], "ai-dynamo"),
    **{"pytorch": "pytorch", "triton": "triton-lang", "flashinfer": "flashinfer-ai"},
    **{"sglang": "sgl-project", "gpustack": "gpustack", "verl": "volcengine"},
    **{"aws-ofi-nccl": "aws", "nats-server": "nats-io", "haproxy": "haproxy"},
    **{"skypilot": "skypilot-org", "LMCache": "LMCache", "LlamaFactory": "hiyouga"},
    **{"llm-d-inference-sim": "llm-d", "kubernetes-ingress": "haproxytech"},
}
SILENT = {
    "stall": "the last line before silence",
    "probe": "no line says it",
    "info": "also in healthy logs",
}
VARIABLES = """\
# All variables

Made by `make reference` from the roles' `meta/argument_specs.yml`; do not edit this page. Set
variables in `group_vars/all.yml` of an inventory, or with `-e` for one run.
`ansible-doc -t role -r roles ROLE` prints the same. Variables that the playbooks set themselves
are left out.

"""
SYMPTOMS = """\
# What a log says, its cause and its fix

Made by `make reference` from `src/vllm_ansible/record/diagnosis/signatures`; do not edit this page.
These are the {count} failures that `vllm-ansible diagnose` recognizes; with `--logs DIR` it reads
any logs. Each line is one example of its kind, shortened where it is long. How one of several lines
is chosen, and how often the choice was right: [failures](failures.md).

"""
SUPPORT = """\
# What is supported, and what shows it

Made by `make reference` from [evidence](evidence.md), the systems that the code accepts, and the
figures in `tests/data`; do not edit this page. A level is that of the row of evidence which shows
most. **hardware**: the real device. **real**: the real software on hosts without accelerators.
**emulated**: a cloud, a device or a vendor's tool is replaced by an emulator. **rendered**: files
are produced and checked, nothing is run. A dash means that no row of evidence shows it.

"""
LEVELS = ("hardware", "real", "emulated", "rendered")
# Patterns of capabilities in docs/evidence.md, the preferred one first.
PREPARED = r"^system packages, service user"
PREPARED_ELSEWHERE = r"^the same on Ubuntu 22\.04"
DRIVER = r"^NVIDIA driver checked and managed by apt"
DRIVER_ELSEWHERE = r"^driver on Rocky"
SYSTEMS = {
    ("debian", "12"): (PREPARED, DRIVER, r"^Enflame driver on lab hosts"),
    ("debian", "13"): (PREPARED_ELSEWHERE, DRIVER_ELSEWHERE, ""),
    ("ubuntu", "22.04"): (PREPARED_ELSEWHERE, DRIVER_ELSEWHERE, ""),
    ("ubuntu", "24.04"): (PREPARED_ELSEWHERE, DRIVER, ""),
    ("rocky", "9"): (PREPARED_ELSEWHERE, DRIVER_ELSEWHERE, ""),
    ("rhel", "9"): (PREPARED_ELSEWHERE, DRIVER_ELSEWHERE, ""),
}
SERVED = {
    "NVIDIA": (
        (r"^`site\.yml` with the default engine",),
        (r"^`site\.yml` over two devices of one host",),
        (r"^`site\.yml` over several hosts", r"^executor `mp` over several hosts"),
    ),
    "Enflame": ((), (), (r"^`inventories/enflame` on two lab hosts",)),
    "CPU": (
        (r"^one host without root",),
        (r"^data-parallel ranks of a dense model",),
        (r"^`inventories/lab`",),
    ),
}
PLATFORMS = {
    "[your own hosts](hosts.md)": (r"^`inventories/lab`",),
    "[Lambda](lambda.md)": (r"^`site\.yml` from no machine", "Lambda"),
    "[AWS](aws.md)": (r"^machines at AWS, spot", "AWS"),
    "[RunPod](runpod.md)": (r"^`site\.yml`.*RunPod", "RunPod"),
    "[Slurm](slurm.md)": (r"^nodes of Slurm", "Slurm"),
    "[no network](sources.md#nothing-at-all)": (r"^from a bundle to an answer", "bundle"),
}


def plain(description: str | list[str]) -> str:
    """Return a description of a spec as Markdown in a cell of a table."""
    text = " ".join([description] if isinstance(description, str) else description)
    return cell(re.sub(r"\b[CVOM]\(((?:[^()]|\([^()]*\))*)\)", r"`\1`", " ".join(text.split())))


def cell(text: str) -> str:
    """Return a text that ends no cell of a table and holds no HTML but in code."""
    parts = text.replace("|", r"\|").split("`")
    return "`".join(
        part if odd % 2 else re.sub(r"<(?=[\w/!])", "&lt;", part) for odd, part in enumerate(parts)
    )


def default(option: Mapping[str, Any]) -> str:
    """Return the default of an option, nothing where it has none."""
    value = option.get("default")
    if option.get("required"):
        return "required"
    if value in (None, "", [], {}):
        return ""
    return code(value if isinstance(value, str) else json.dumps(value))


def rows(options: Mapping[str, Any], within: str = "") -> Iterator[str]:
    """Yield a row for each option, those inside it after it."""
    for name, option in options.items():
        said = plain(option["description"])
        if PLUMBING.search(said):
            continue
        choices = [f"`{one}`" for one in option.get("choices", []) if one != ""]
        kind = option["type"] + (f" of {option['elements']}" if "elements" in option else "")
        # A list of engines is too long for a cell, and stands in the README.
        shown = "" if "options" in option else default(option)
        values = f" One of {', '.join(choices)}." if choices else ""
        yield f"| `{within}{name}` | {kind} | {shown} | {said}{values} |"
        yield from rows(option.get("options", {}), f"{within}{name}[].")


def table(options: Mapping[str, Any]) -> list[str]:
    """Return the lines of a table of options."""
    return ["| variable | type | default | |", "|---|---|---|---|", *rows(options), ""]


def variables(specs: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the page of all variables; specs: the main entry point of each role, by its name."""
    lines = []
    for role, spec in sorted(specs.items(), key=lambda item: (item[0] != "site", item[0])):
        options = {name: one for name, one in spec["options"].items() if any(rows({name: one}))}
        first = Counter(name.split("_")[0] for name in options)
        families = [one for one, count in first.items() if role == "site" and count >= FAMILY]
        rest = {name: one for name, one in options.items() if name.split("_")[0] not in families}
        lines += [f"## {role}", "", f"{plain(spec['short_description'])}.", "", *table(rest)]
        for family in families:
            lines += [f"### {family}_*", ""]
            lines += table({n: one for n, one in options.items() if n.split("_")[0] == family})
    return VARIABLES + "\n".join(lines).rstrip() + "\n"


def code(text: str) -> str:
    """Return a text as code on one line, whatever it holds."""
    line = " ".join(text.split())
    line = line if len(line) <= MOST_SAMPLE else f"{line[:MOST_SAMPLE].rstrip()}..."
    line = line.replace("|", r"\|")
    return f"`` {line} ``" if "`" in line else f"`{line}`"


def thread(ref: str) -> str:
    """Return a link to a thread, where the owner of its project is known."""
    project, _, number = ref.partition("#")
    owned = project if "/" in project else f"{OWNERS.get(project, '')}/{project}"
    if not number.isdigit() or owned.startswith("/"):
        return ref
    return f"[{ref}](https://github.com/{owned}/issues/{number})"


def symptom(signature: Signature) -> str:
    """Return the row of a known failure."""
    kind = SILENT.get(signature.kind)
    name = f"**{signature.id}**" + (f" ({kind})" if kind else "")
    sample = "" if signature.kind == "probe" else f"<br>{code(signature.sample)}"
    threads = ", ".join(map(thread, signature.refs[:MOST_THREADS]))
    seen = f"<br>{threads}" if threads else ""
    return f"| {name}{sample} | {cell(signature.cause)} | {cell(signature.fix)}{seen} |"


def symptoms() -> str:
    """Return the page of all known failures."""
    known = {one.id: one for one in signatures()}
    lines = []
    for file in sorted(SIGNATURES.glob("*.yml")):
        lines += [f"## {file.stem}", "", "| the log says | cause | fix |", "|---|---|---|"]
        ids = [item["id"] for item in yaml.safe_load(file.read_text())]
        lines += [*(symptom(known[one]) for one in ids), ""]
    return SYMPTOMS.format(count=len(known)) + "\n".join(lines).rstrip() + "\n"


def evidence() -> list[tuple[str, str]]:
    """Return capability and level of each row of docs/evidence.md."""
    text = (ROOT / "docs/evidence.md").read_text()
    cells = [row.split("|") for row in re.findall(r"^\|(.*)\|$", text, re.MULTILINE)[2:]]
    return [(row[0].strip(), row[1].strip()) for row in cells]


def level(rows: Sequence[tuple[str, str]], *patterns: str) -> str:
    """Return the highest level of the rows which the first pattern that fits any of them names."""
    for pattern in filter(None, patterns):
        fitting = [found for capability, found in rows if re.search(pattern, capability)]
        if fitting:
            return min(fitting, key=lambda one: LEVELS.index(re.split(r"\W", one)[0]))
    if any(patterns):
        raise LookupError(
            f"no row of docs/evidence.md is about {patterns}: change tools/reference.py"
        )
    return "-"


def measured() -> list[dict[str, Any]]:
    """Return what was measured on real devices, the newest first."""
    found = []
    for path in (ROOT / "tests/data").glob("*.json"):
        kept = json.loads(path.read_text())
        if isinstance(kept, dict) and {"device", "date"} <= set(kept):
            found.append({**kept, "file": path.name})
    return sorted(found, key=lambda one: (one["date"], one["file"]), reverse=True)


def support(rows: Sequence[tuple[str, str]]) -> str:
    """Return the page of what is supported; rows: capabilities and levels of the evidence."""
    lines = [
        "## Operating systems of hosts",
        "",
        f"On {' and '.join(ARCHITECTURES)}; any other system is refused before it is changed.",
        "Root installs packages and makes users and directories. Without root, the run names the",
        "packages that are missing.",
        "",
        "| system | packages, users | NVIDIA driver managed | Enflame driver managed |",
        "|---|---|---|---|",
    ]
    for system, releases in SUPPORTED.items():
        for release in releases:
            cells = [level(rows, pattern) for pattern in SYSTEMS[system, release]]
            lines.append(f"| {system} {release} | {' | '.join(cells)} |")
    lines += [
        *("", "## Accelerators, from nothing to a correct answer", ""),
        "| accelerator | one device | several devices of one host | several hosts |",
        "|---|---|---|---|",
    ]
    for name, patterns in SERVED.items():
        lines.append(f"| {name} | {' | '.join(level(rows, *one) for one in patterns)} |")
    lines += ["", "## Where hosts come from", "", "| hosts | level |", "|---|---|"]
    lines += [f"| {name} | {level(rows, *patterns)} |" for name, patterns in PLATFORMS.items()]
    lines += [
        *("", "## Real devices that figures were measured on", ""),
        "| date | device | engine | figures |",
        "|---|---|---|---|",
    ]
    for one in measured():
        cells = [one["date"], one["device"], one.get("engine", "-")]
        lines.append(f"| {' | '.join(map(cell, cells))} | `tests/data/{one['file']}` |")
    return SUPPORT + "\n".join(lines) + "\n"


def specs() -> dict[str, Any]:
    """Return the main entry point of each role, by the name of the role."""
    return {
        path.parts[-3]: yaml.safe_load(path.read_text())["argument_specs"]["main"]
        for path in sorted((ROOT / "roles").glob("*/meta/argument_specs.yml"))
    }


def pages() -> dict[str, str]:
    """Return what each page of the reference has to be, by its name in docs/."""
    return {
        "variables.md": variables(specs()),
        "symptoms.md": symptoms(),
        "support.md": support(evidence()),
    }


if __name__ == "__main__":
    for name, text in pages().items():
        (ROOT / "docs" / name).write_text(text)
