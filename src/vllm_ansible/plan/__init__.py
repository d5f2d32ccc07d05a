"""From a list of engines to planned ranks and wanted processes: pure functions over facts."""
