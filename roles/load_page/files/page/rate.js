// Tokens per second over time, from arrivals.

export class Rate {
  #bins = [];
  #last = 0;
  total = 0;

  /** bin: its length in milliseconds; began: where the first one begins. */
  constructor(began, bin = 500) {
    this.began = began;
    this.bin = bin;
  }

  /** Count tokens that arrived at a time, both by performance.now(). */
  add(at, tokens) {
    const place = Math.floor((at - this.began) / this.bin);
    this.#bins[place] = (this.#bins[place] ?? 0) + tokens;
    this.#last = Math.max(this.#last, at);
    this.total += tokens;
  }

  /** Return [seconds, tokens per second] for each bin that is over. */
  points(now) {
    const over = Math.floor((now - this.began) / this.bin);
    return Array.from({ length: over }, (_, place) => [
      ((place + 1) * this.bin) / 1000,
      ((this.#bins[place] ?? 0) * 1000) / this.bin,
    ]);
  }

  /** Return the tokens per second of the last two bins that are over. */
  live(now) {
    const latest = this.points(now).slice(-2);
    return latest.reduce((sum, [, rate]) => sum + rate, 0) / Math.max(latest.length, 1);
  }

  /** Return the tokens per second from the beginning to the last arrival. */
  overall() {
    return this.total === 0 ? 0 : (this.total * 1000) / (this.#last - this.began);
  }
}
