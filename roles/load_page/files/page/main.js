// What the controls do. The key lives in this module's memory and nowhere else.

import { Answers } from "./answers.js";
import { cluster, show } from "./cluster.js";
import { asCsv, asJson, save } from "./export.js";
import { showLarge, showTable, shown } from "./figures.js";
import { dots, histogram, line } from "./plots.js";
import { Run } from "./run.js";
import { reason, send } from "./stream.js";

const MOST_DOTS = 2000;
const REDRAW_MILLISECONDS = 500;
// So often a text looks as if it came by itself.
const TEXT_MILLISECONDS = 100;
// As often as it is written.
const CLUSTER_MILLISECONDS = 15000;
const by = (id) => document.getElementById(id);
let key = "";
let run = null;
let stopping = null;
let watching = null;

function say(text, bad = false) {
  by("message").textContent = text;
  by("message").classList.toggle("bad", bad);
}

async function connect() {
  const given = by("key").value.trim();
  // A browser refuses to send others, and says so in words of its own.
  if (!/^[\x21-\x7e]+$/.test(given)) return say("this is not the key", true);
  const [response, found] = await Promise.all([send("engines.json", given, {}), cluster(given)]);
  if (found) watch(given, found);
  else if (response.status === 401) return say("this is not the key", true);
  // The cluster is seen although no engine answers.
  if (!response.ok) return say(`${response.status}: ${reason(await response.text())}`, true);
  const engines = await response.json();
  key = given;
  by("key").value = "";
  by("engine").replaceChildren(
    ...engines.map((one) => {
      const option = new Option(`${one.name} (${one.model})`, one.name);
      option.dataset.model = one.model;
      return option;
    }),
  );
  by("door").hidden = true;
  by("controls").hidden = false;
  say("");
}

// Shown first, and again as often as there may be newer figures.
function watch(given, first) {
  clearInterval(watching);
  let last = first;
  watching = setInterval(async () => {
    last = (await cluster(given)) ?? last;
    show(by("cluster"), last);
  }, CLUSTER_MILLISECONDS);
  show(by("cluster"), first);
  by("cluster").hidden = false;
}

function settings() {
  const engine = by("engine").selectedOptions[0];
  const number = (id) => by(id).valueAsNumber;
  return {
    engine: engine.value,
    model: engine.dataset.model,
    url: `engines/${engine.value}/v1/`,
    path: by("path").value,
    concurrency: number("concurrency"),
    requests: number("requests"),
    promptTokens: number("prompt-tokens"),
    outputTokens: number("output-tokens"),
    exact: by("exact").checked,
    question: by("question").value,
  };
}

function busy(is) {
  by("start").disabled = is;
  by("stop").disabled = !is;
  for (const id of ["json", "csv"]) by(id).disabled = is || !run?.samples.length;
}

async function start() {
  stopping = new AbortController();
  run = new Run(settings(), key);
  const answers = new Answers(by("answers"), run.settings.concurrency);
  busy(true);
  say("finding the length of the prompt");
  // Figures of the run before would stand below the message of this one.
  by("results").hidden = true;
  const timers = [
    setInterval(draw, REDRAW_MILLISECONDS),
    setInterval(() => answers.draw(), TEXT_MILLISECONDS),
  ];
  try {
    await run.go(stopping.signal, (slot, text, number) => answers.add(slot, text, number));
    const first = run.samples.find((one) => one.error);
    const ended = stopping.signal.aborted ? "stopped" : "done";
    say(first ? `${ended}; the first failure: ${first.error}` : ended, Boolean(first));
  } catch (error) {
    say(stopping.signal.aborted ? "stopped" : `nothing was sent: ${error.message}`, true);
  }
  timers.forEach(clearInterval);
  draw();
  answers.draw();
  busy(false);
}

function draw() {
  if (!run.rate) return;
  by("results").hidden = false;
  const now = run.ended ?? performance.now();
  if (run.ended === undefined) say(`running: ${run.samples.length} of ${run.settings.requests}`);
  const figures = run.figures();
  showLarge(by("large"), {
    live: shown(run.ended === undefined ? run.rate.live(now) : 0),
    overall: shown(figures.output_tokens_per_second),
    flight: String(run.inFlight),
    answered: String(figures.answered),
    failed: String(figures.failed),
    prompt: shown(figures.prompt_tokens.mean),
    tokens: String(figures.output_tokens),
  });
  showTable(by("table"), figures);
  const { ttft, itl } = run.times;
  line(by("plot-rate"), run.rate.points(now), "seconds");
  dots(by("plot-ttft"), ttft.slice(-MOST_DOTS), "seconds");
  histogram(by("plot-itl"), itl, (figures.itl_ms.p99 ?? 0) * 1.2, "ms; the last bar holds all above");
}

function exported(kind, type, text) {
  save(`load-${run.settings.engine}-${run.startedAt.replaceAll(/[:.]/g, "")}.${kind}`, type, text);
}

function handle(id, kind, action) {
  by(id).addEventListener(kind, (event) => {
    event.preventDefault();
    Promise.resolve(action()).catch((error) => say(error.message, true));
  });
}

handle("door", "submit", connect);
handle("controls", "submit", start);
handle("stop", "click", () => stopping.abort());
handle("json", "click", () => exported("json", "application/json", asJson(run)));
handle("csv", "click", () => exported("csv", "text/csv", asCsv(run)));
