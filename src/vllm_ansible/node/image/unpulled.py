"""What mends a pull that failed, by the words of the tool."""

from __future__ import annotations

from ..failure import Failure
from .tool import Tool


def unpulled(name: str, tool: Tool, error: Failure) -> str:
    """Return what mends a pull that failed with these words of the tool."""
    words = str(error).lower()
    registry = name.partition("/")[0]
    if any(word in words for word in ("unauthorized", "authentication required", "denied")):
        return f"log in on each host, as who runs this: {tool.kind} login {registry}"
    if "manifest unknown" in words or "not found" in words:
        return "correct engine_image: the registry has no image of this name and tag or digest"
    return (
        f"let each host reach {registry} (sources_environment holds a proxy), or bring the image "
        "as a tar (engine_image_file)"
    )
