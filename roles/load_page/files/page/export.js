// What a run leaves: JSON with everything, CSV with one row for each request. Never the key.

import { summary } from "./percentiles.js";

const COLUMNS = [
  ...["number", "began_s", "ttft_ms", "itl_p50_ms", "itl_p99_ms", "total_ms"],
  ...["prompt_tokens", "completion_tokens", "stopped", "error"],
];

function row(sample, began) {
  const itl = summary(sample.itl);
  return {
    // As above its answer; the rows are in the order in which the answers ended.
    number: sample.number + 1,
    began_s: (sample.began - began) / 1000,
    ttft_ms: sample.ttft,
    itl_p50_ms: itl.p50 ?? null,
    itl_p99_ms: itl.p99 ?? null,
    total_ms: sample.total,
    prompt_tokens: sample.promptTokens,
    completion_tokens: sample.tokens,
    stopped: sample.stopped,
    error: sample.error,
  };
}

/** Return a run as JSON, with every gap between tokens; rate: [seconds, tokens per second]. */
export function asJson(run) {
  const requests = run.samples.map((sample) => ({
    ...row(sample, run.began),
    itl_ms: sample.itl,
  }));
  const { startedAt, settings, promptWords } = run;
  const told = { started_at: startedAt, settings, prompt_words: promptWords };
  const rate = run.rate.points(run.ended);
  return JSON.stringify({ ...told, figures: run.figures(), rate, requests }, null, 1);
}

/** Return one row for each request, as RFC 4180 has it. */
export function asCsv(run) {
  const rows = run.samples.map((sample) => row(sample, run.began));
  const lines = rows.map((one) => COLUMNS.map((name) => field(one[name])).join(","));
  return [COLUMNS.join(","), ...lines, ""].join("\r\n");
}

function field(value) {
  let text = value === null ? "" : String(value);
  // A spreadsheet would run what an engine's error begins with.
  if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = `'${text}`;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Let the browser keep a text as a file. */
export function save(name, type, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
