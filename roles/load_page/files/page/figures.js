// The figures of a run, as a row of large ones and a table of percentiles.

const COLUMNS = ["p50", "p90", "p95", "p99", "mean", "max", "count"];
const ROWS = { "TTFT, ms": "ttft_ms", "ITL, ms": "itl_ms", "whole answer, ms": "total_ms" };

/** Return a number with at most three digits after the point, fewer where it is large. */
export function shown(value) {
  if (value === undefined) return "–";
  return String(Number(value.toFixed(value >= 100 ? 0 : value >= 10 ? 1 : 2)));
}

/** Fill the large figures, by the name that each element carries as data-figure. */
export function showLarge(place, values) {
  for (const [name, value] of Object.entries(values)) {
    place.querySelector(`[data-figure="${name}"]`).textContent = value;
  }
}

/** Fill the body of the table of percentiles. */
export function showTable(body, figures) {
  const rows = Object.entries(ROWS).map(([title, name]) => {
    const row = document.createElement("tr");
    row.dataset.row = name;
    const head = document.createElement("th");
    head.textContent = title;
    const cells = COLUMNS.map((column) => {
      const cell = document.createElement("td");
      cell.textContent = shown(figures[name][column]);
      return cell;
    });
    row.append(head, ...cells);
    return row;
  });
  body.replaceChildren(...rows);
}
