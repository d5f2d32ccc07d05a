"""Judge what was seen of every host before an engine starts: pure functions from looks to rows."""
