// Exact percentiles: over every sample, linear between neighbours, as numpy and vllm bench do.

export const PERCENTS = [50, 90, 95, 99];

/** Samples kept in order, so that to draw a long run twice a second does not delay its arrivals. */
export class Samples {
  #sorted = new Float64Array(0);
  #fresh = [];
  #sum = 0;

  add(value) {
    this.#fresh.push(value);
    this.#sum += value;
  }

  /** Return every sample, the lowest first. */
  get sorted() {
    if (this.#fresh.length > 0) {
      // Not a plain sort, which compares numbers as text.
      this.#sorted = merged(this.#sorted, Float64Array.from(this.#fresh).sort());
      this.#fresh = [];
    }
    return this.#sorted;
  }

  /** Return {count, mean, p50, p90, p95, p99, max}; only a count of 0 where there is no sample. */
  summary() {
    const { sorted } = this;
    if (sorted.length === 0) return { count: 0 };
    const mean = this.#sum / sorted.length;
    const each = PERCENTS.map((percent) => [`p${percent}`, percentile(sorted, percent)]);
    return { count: sorted.length, mean, ...Object.fromEntries(each), max: sorted.at(-1) };
  }
}

/** Return the summary of samples that are known at once. */
export function summary(values) {
  const samples = new Samples();
  for (const one of values) samples.add(one);
  return samples.summary();
}

function percentile(sorted, percent) {
  const place = ((sorted.length - 1) * percent) / 100;
  const below = Math.floor(place);
  const above = Math.min(below + 1, sorted.length - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (place - below);
}

function merged(first, second) {
  const both = new Float64Array(first.length + second.length);
  for (let place = 0, one = 0, other = 0; place < both.length; place += 1) {
    const takeFirst = other === second.length || (one < first.length && first[one] <= second[other]);
    both[place] = takeFirst ? first[one++] : second[other++];
  }
  return both;
}
