// Plots drawn by hand: SVG elements, no library.

const WIDTH = 340;
const HEIGHT = 170;
const LEFT = 48;
const BOTTOM = 30;
const TOP = 10;
const RIGHT = 10;
const BARS = 30;

function element(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

/** Return the lowest of 1, 2, 2.5, 5 times a power of ten that is at least `value`. */
export function niceCeiling(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((one) => one * power).find((one) => one >= value * (1 - 1e-9));
}

function frame(svg, most, labels) {
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  svg.replaceChildren();
  const at = {
    x: (value) => LEFT + (value / most.x) * (WIDTH - LEFT - RIGHT),
    y: (value) => HEIGHT - BOTTOM - (value / most.y) * (HEIGHT - BOTTOM - TOP),
  };
  for (const part of [0, 0.5, 1]) {
    const y = at.y(most.y * part);
    svg.append(element("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y, y2: y, class: "grid" }));
    svg.append(element("text", { x: LEFT - 5, y: y + 4, class: "left" }, shown(most.y * part)));
    const x = at.x(most.x * part);
    const side = part === 1 ? "left" : "below";
    svg.append(element("text", { x, y: HEIGHT - 16, class: side }, shown(most.x * part)));
  }
  svg.append(element("text", { x: (WIDTH + LEFT) / 2, y: HEIGHT - 3, class: "below" }, labels));
  return at;
}

const shown = (value) => String(Number(value.toPrecision(3)));
const highest = (values) => values.reduce((most, one) => Math.max(most, one), 0);

function scales(points) {
  return {
    x: niceCeiling(highest(points.map(([x]) => x))),
    y: niceCeiling(highest(points.map(([, y]) => y))),
  };
}

/** Draw [x, y] points as one line. */
export function line(svg, points, labels) {
  const at = frame(svg, scales(points), labels);
  const path = points.map(([x, y]) => `${at.x(x).toFixed(1)},${at.y(y).toFixed(1)}`).join(" ");
  svg.append(element("polyline", { points: path, class: "curve" }));
}

/** Draw [x, y] points each by itself. */
export function dots(svg, points, labels) {
  const at = frame(svg, scales(points), labels);
  for (const [x, y] of points) {
    svg.append(element("circle", { cx: at.x(x), cy: at.y(y), r: 2.5, class: "dot" }));
  }
}

/** Draw how often values occur, from 0 to `most`; what lies above goes into the last bar. */
export function histogram(svg, values, most, labels) {
  const width = niceCeiling(most) / BARS;
  const counts = new Array(BARS).fill(0);
  for (const one of values) counts[Math.min(Math.floor(one / width), BARS - 1)] += 1;
  const at = frame(svg, { x: width * BARS, y: niceCeiling(highest(counts)) }, labels);
  counts.forEach((count, place) => {
    const [x, y] = [at.x(place * width), at.y(count)];
    const size = { width: at.x(width) - at.x(0) - 1, height: at.y(0) - y };
    svg.append(element("rect", { x, y, ...size, class: "bar" }));
  });
}
