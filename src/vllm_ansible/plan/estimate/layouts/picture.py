"""A picture of ranks on devices on nodes, each with what fills its memory, as one SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from vllm_ansible.frozen import frozen
from vllm_ansible.plan.estimate.layouts.engine_set import EngineSet

GIB = 1 << 30
COLOURS = ("#3a6ea5", "#d98324", "#4f9d69", "#a34a7c", "#7a6bb5", "#5c8a8a")
INK, DIM, LINE, SOFT, BESIDE = "#1c2430", "#667085", "#d3d9e2", "#f6f7f9", "#98a2b3"
DEVICE_WIDTH, BAR_HEIGHT, GAP, PADDING, HEAD, FOOT = 62, 92, 8, 12, 26, 34
WIDTH = 1000
# Nodes beyond these look like them.
SHOWN_NODES = 32


@frozen
class Device:
    """One device: the rank on it, its stage, and what fills its memory, in bytes; no rank is None.

    `engine` numbers the engines of one picture.
    """

    total: float
    rank: int | None = None
    engine: int = 0
    stage: int = 0
    weights: float = 0.0
    beside: float = 0.0
    cache: float = 0.0


@frozen
class Host:
    """One node with its devices in order."""

    name: str
    kind: str
    devices: tuple[Device, ...]


def of_set(found: EngineSet) -> str:
    """Return the picture of a set of engines."""
    seats: dict[tuple[str, int], Device] = {}
    engines, names = 0, []
    for member in found.members:
        held = member.answer.chosen.budget
        if held is None:
            continue
        memory = {
            piece.node.name: float(piece.node.accelerator.memory_bytes) for piece in member.pieces
        }
        places = zip(member.answer.seats(), member.devices(), strict=True)
        for seat, (node, number) in places:
            stage = held.stages[seat.stage]
            seats[node, number] = Device(
                memory[node],
                seat.rank,
                engines + seat.engine,
                seat.stage,
                stage.weights,
                stage.overhead.mid,
                stage.kv_bytes.mid,
            )
        engines += member.engines
        names.append(member.answer.chosen.candidate.name)
    hosts = [
        Host(
            node.name,
            node.accelerator.name,
            tuple(
                seats.get((node.name, number), Device(float(node.accelerator.memory_bytes)))
                for number in range(node.devices)
            ),
        )
        for node in found.request.machines.nodes
    ]
    return draw(f"{found.request.model.name}: {', '.join(names)}", hosts)


def of_plan(engines: Sequence[Mapping[str, Any]]) -> str:
    """Return the picture of a kept plan's engines, or nothing where none has an estimate."""
    hosts: dict[str, dict[int, Device]] = {}
    kinds: dict[str, str] = {}
    for number, engine in enumerate(engines):
        estimate = engine.get("estimate") or {}
        stages = estimate.get("stages") or []
        tensor = int((engine.get("layout") or {}).get("tensor") or 1)
        if not stages:
            continue
        for rank in engine.get("ranks") or []:
            stage = min(int(rank["rank"]) // tensor, len(stages) - 1)
            held = stages[stage]
            kinds[str(rank["host"])] = str(estimate.get("accelerator", ""))
            hosts.setdefault(str(rank["host"]), {})[int(rank["device"])] = Device(
                float(held["memory_bytes"]),
                int(rank["rank"]),
                number,
                stage,
                float(held["weights_bytes"]),
                float(held["overhead_bytes"][1]),
                float(held["kv_bytes"][1]),
            )
    if not hosts:
        return ""
    return draw(
        "Memory of each rank, as planned",
        [
            Host(name, kinds[name], tuple(devices[place] for place in sorted(devices)))
            for name, devices in hosts.items()
        ],
    )


def draw(title: str, hosts: Sequence[Host]) -> str:
    """Return the SVG of hosts, in rows as wide as they go."""
    shown = hosts[:SHOWN_NODES]
    x, y, tallest, parts = 0.0, 62.0, 0.0, []
    for host in shown:
        width = _width(host)
        height = HEAD + (BAR_HEIGHT + FOOT) + PADDING
        if x and x + width > WIDTH:
            x, y = 0.0, y + tallest + GAP
        parts.append(_host(host, x, y, width, height))
        x, tallest = x + width + GAP, height
    bottom = y + tallest
    if len(hosts) > len(shown):
        words = f"and {len(hosts) - len(shown)} nodes more, filled in the same way"
        parts.append(_text(0, bottom + 20, words, DIM, 13))
        bottom += 28
    stages = {device.stage for host in hosts for device in host.devices if device.rank is not None}
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-8 -8 {WIDTH + 16} {bottom + 16:.0f}" '
        f'role="img" aria-label="{escape(title)}" '
        'font-family="system-ui, Segoe UI, Roboto, Liberation Sans, sans-serif">'
        f'<rect x="-8" y="-8" width="{WIDTH + 16}" height="{bottom + 16:.0f}" fill="#ffffff"/>'
        f"{_text(0, 16, title, INK, 17, bold=True)}{_legend(len(stages))}{''.join(parts)}</svg>\n"
    )


def _width(host: Host) -> float:
    return max(2 * PADDING + len(host.devices) * (DEVICE_WIDTH + GAP) - GAP, 150)


def _host(host: Host, x: float, y: float, width: float, height: float) -> str:
    parts = [
        f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height:.0f}" rx="6" '
        f'fill="{SOFT}" stroke="{LINE}"/>',
        _text(x + PADDING, y + 18, host.name, INK, 13, bold=True),
        _text(x + width - PADDING, y + 18, host.kind, DIM, 12, end=True),
    ]
    for place, device in enumerate(host.devices):
        left = x + PADDING + place * (DEVICE_WIDTH + GAP)
        parts.append(_device(device, left, y + HEAD))
    return "".join(parts)


def _device(device: Device, x: float, y: float) -> str:
    """Return one device: its memory as a bar, from the bottom weights, the rest, the cache."""
    colour = COLOURS[device.stage % len(COLOURS)]
    box = (
        f'<rect x="{x:.0f}" y="{y:.0f}" width="{DEVICE_WIDTH}" height="{BAR_HEIGHT}" rx="3" '
        f'fill="#ffffff" stroke="{LINE}"/>'
    )
    if device.rank is None:
        return box + _text(
            x + DEVICE_WIDTH / 2, y + BAR_HEIGHT / 2 + 4, "free", DIM, 12, middle=True
        )
    parts, base = [box], y + BAR_HEIGHT
    for size, fill, opacity in (
        (device.weights, colour, 1.0),
        (device.beside, BESIDE, 1.0),
        (device.cache, colour, 0.35),
    ):
        height = max(0.0, BAR_HEIGHT * size / device.total)
        base -= height
        parts.append(
            f'<rect x="{x + 1:.0f}" y="{base:.1f}" width="{DEVICE_WIDTH - 2}" '
            f'height="{height:.1f}" fill="{fill}" fill-opacity="{opacity}"/>'
        )
    engine = f"{device.engine + 1}." if device.engine else ""
    figures = f"{device.weights / GIB:.1f} + {device.cache / GIB:.1f}"
    centre = x + DEVICE_WIDTH / 2
    parts.append(
        f"<title>rank {device.rank}, stage {device.stage}: weights {device.weights / GIB:.2f}, "
        f"overhead {device.beside / GIB:.2f}, cache {device.cache / GIB:.2f} "
        f"of {device.total / GIB:.2f} GiB</title>"
    )
    parts.append(_text(centre, y + BAR_HEIGHT + 15, f"{engine}{device.rank}", INK, 13, middle=True))
    parts.append(_text(centre, y + BAR_HEIGHT + 29, figures, DIM, 10.5, middle=True))
    return f"<g>{''.join(parts)}</g>"


def _legend(stages: int) -> str:
    """Return what the colours mean: a colour is a pipeline stage."""
    items = [("weights (GiB)", COLOURS[0], 1.0), ("activations, graphs, the rest", BESIDE, 1.0)]
    items.append(("KV cache (GiB)", COLOURS[0], 0.35))
    parts, x = [], 0.0
    for words, fill, opacity in items:
        parts.append(
            f'<rect x="{x:.0f}" y="32" width="12" height="12" rx="2" fill="{fill}" '
            f'fill-opacity="{opacity}"/>{_text(x + 18, 43, words, DIM, 12.5)}'
        )
        x += 34 + 6.6 * len(words)
    if stages > 1:
        words = f"{stages} pipeline stages, a colour each; the number is the rank"
    else:
        words = "the number is the rank"
    return "".join([*parts, _text(x, 43, words, DIM, 12.5)])


def _text(
    x: float,
    y: float,
    words: str,
    fill: str,
    size: float,
    *,
    bold: bool = False,
    middle: bool = False,
    end: bool = False,
) -> str:
    anchor = "middle" if middle else "end" if end else "start"
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{fill}" font-size="{size}" '
        f'text-anchor="{anchor}"{weight}>{escape(words)}</text>'
    )
