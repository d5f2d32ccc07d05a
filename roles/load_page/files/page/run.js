// One load test: its settings, every sample, and the figures so far.

import { load } from "./load.js";
import { Samples, summary } from "./percentiles.js";
import { prompt, wordsFor } from "./prompts.js";
import { Rate } from "./rate.js";
import { ask } from "./stream.js";

export class Run {
  samples = [];
  inFlight = 0;
  promptWords = null;
  #ttft = new Samples();
  #itl = new Samples();

  /** settings: {engine, model, url, path, concurrency, requests, promptTokens, outputTokens, exact, question}. */
  constructor(settings, key) {
    this.settings = settings;
    this.startedAt = new Date().toISOString();
    this.#key = key;
  }
  #key;

  /** Find the prompt's length, then send all requests; onText(slot, text) follows the answers. */
  async go(signal, onText) {
    const { concurrency, requests, promptTokens } = this.settings;
    const measure = (words) => this.#promptTokens(words, signal);
    this.promptWords = (await wordsFor(promptTokens, measure)).words;
    this.began = performance.now();
    this.rate = new Rate(this.began);
    const one = (slot, number) => this.#one(slot, number, signal, onText);
    const onSample = (sample) => this.#keep(sample);
    await load({ concurrency, requests, signal, one, onSample });
    this.ended = performance.now();
  }

  /** Return everything the table shows; rates in tokens per second, times in milliseconds. */
  figures() {
    const failed = this.samples.filter((one) => one.error !== null);
    const answered = this.samples.filter((one) => one.error === null && !one.stopped);
    const lengths = this.samples.flatMap((one) => one.promptTokens ?? []);
    return {
      answered: answered.length,
      failed: failed.length,
      stopped: this.samples.length - failed.length - answered.length,
      output_tokens: this.rate?.total ?? 0,
      output_tokens_per_second: this.rate?.overall() ?? 0,
      prompt_tokens: summary(lengths),
      ttft_ms: this.#ttft.summary(),
      itl_ms: this.#itl.summary(),
      total_ms: summary(answered.map((one) => one.total)),
    };
  }

  /** Return [seconds, TTFT] of each request, and every gap between tokens. */
  get times() {
    const seen = this.samples.filter((one) => one.ttft !== null);
    const ttft = seen.map((one) => [(one.began - this.began) / 1000, one.ttft]);
    return { ttft, itl: this.#itl.sorted };
  }

  async #one(slot, number, signal, onText) {
    this.inFlight += 1;
    onText(slot, null, number);
    const { promptWords: words } = this;
    const onArrival = (tokens, text) => {
      this.rate.add(performance.now(), tokens);
      onText(slot, text, number);
    };
    const sample = await this.#ask(words, this.settings.outputTokens, signal, onArrival);
    this.inFlight -= 1;
    return { ...sample, number };
  }

  #keep(sample) {
    this.samples.push(sample);
    if (sample.ttft !== null) this.#ttft.add(sample.ttft);
    for (const one of sample.itl) this.#itl.add(one);
  }

  #ask(words, tokens, signal, onArrival) {
    const { url, path, model, question, exact } = this.settings;
    const content = prompt(question, words);
    const asked = path === "completions" ? { prompt: content } : { messages: [{ role: "user", content }] };
    const body = { model, ...asked, max_tokens: tokens, ignore_eos: exact };
    return ask({ url: url + path, key: this.#key, body, signal, onArrival });
  }

  async #promptTokens(words, signal) {
    const sample = await this.#ask(words, 1, signal, () => {});
    if (sample.error) throw new Error(sample.error);
    if (sample.stopped) throw new Error("stopped while the prompt was measured");
    return sample.promptTokens;
  }
}
