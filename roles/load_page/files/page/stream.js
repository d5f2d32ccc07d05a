// One streamed answer, and when its tokens arrived. All times are milliseconds.

import { Events } from "./events.js";

/** What an engine, or what stands before it, answered instead of a stream. */
class Refused extends Error {
  constructor(status, text) {
    super(`${status}: ${text}`);
    this.status = status;
  }
}

/** Send a request with the key, to our own origin; throws where nobody answers. */
export async function send(url, key, options) {
  const headers = { Authorization: `Bearer ${key}`, "Content-Type": "application/json" };
  const common = { headers, cache: "no-store", credentials: "omit" };
  try {
    return await fetch(url, { ...common, ...options });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new Error(`nobody answers at ${location.host} (${error.message})`);
  }
}

/**
 * Ask once and follow the answer; onArrival(tokens, text) is called for each arrival.
 *
 * Returns {began, ttft, itl, total, promptTokens, tokens, error, stopped}: began by
 * performance.now(), ttft and total after it, itl one value for each token after the first arrival.
 * Tokens are those of the engine's own usage. What did not arrive is null. Throws nothing.
 */
export async function ask({ url, key, body, signal, onArrival }) {
  const sample = blank(performance.now());
  try {
    const asked = JSON.stringify({ ...body, stream: true, stream_options: USAGE });
    const response = await send(url, key, { method: "POST", body: asked, signal });
    if (!response.ok) throw new Refused(response.status, reason(await response.text()));
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    try {
      await follow(reader, sample, onArrival);
    } finally {
      // After a failure the engine would go on for nobody.
      reader.cancel().catch(() => {});
    }
  } catch (error) {
    sample.stopped = signal.aborted;
    sample.error = signal.aborted ? null : error.message;
    sample.status = error.status ?? null;
  }
  sample.total = performance.now() - sample.began;
  return sample;
}

// vLLM then counts in every chunk what it has produced so far.
const USAGE = { include_usage: true, continuous_usage_stats: true };

function blank(began) {
  const nothing = { ttft: null, total: null, promptTokens: null, tokens: 0 };
  return { began, ...nothing, itl: [], error: null, status: null, stopped: false };
}

/** Return the words of an error, which most servers wrap into JSON. */
export function reason(text) {
  try {
    const told = JSON.parse(text);
    return String(told.error?.message ?? told.message ?? told.error ?? text).slice(0, 300);
  } catch {
    return text.replace(/<[^>]*>/g, " ").replace(/\s+/g, " ").trim().slice(0, 300);
  }
}

async function follow(reader, sample, onArrival) {
  const events = new Events();
  let last = null;
  let finished = false;
  for (let { value, done } = await next(reader); !done; { value, done } = await next(reader)) {
    const at = performance.now();
    let text = "";
    let counted = sample.tokens;
    for (const data of events.push(value)) {
      if (data === "[DONE]") {
        finished = true;
        continue;
      }
      const chunk = JSON.parse(data);
      if (chunk.error) throw new Refused(chunk.error.code ?? 500, reason(data));
      text += textOf(chunk);
      counted = chunk.usage?.completion_tokens ?? counted;
      sample.promptTokens = chunk.usage?.prompt_tokens ?? sample.promptTokens;
    }
    const tokens = counted - sample.tokens;
    sample.tokens = counted;
    if (tokens > 0) {
      if (last === null) sample.ttft = at - sample.began;
      // Tokens that arrive together have shared the time since the arrival before.
      else for (let each = 0; each < tokens; each += 1) sample.itl.push((at - last) / tokens);
      last = at;
    }
    if (tokens > 0 || text) onArrival(tokens, text);
  }
  if (!finished) throw new Error("the stream ended before its answer did");
  if (sample.promptTokens === null) throw new Error("the engine told no usage");
}

async function next(reader) {
  try {
    return await reader.read();
  } catch (error) {
    throw new Error(`the answer broke off (${error.message})`);
  }
}

// A completion has text, a chat has a delta whose reasoning, where there is any, comes first.
function textOf(chunk) {
  const { text, delta = {} } = chunk.choices?.[0] ?? {};
  return text ?? (delta.reasoning_content ?? delta.reasoning ?? "") + (delta.content ?? "");
}
