// A closed loop: as soon as one answer is whole, the next question is asked in its place.

const WAIT_AFTER_FAILURE = 1000;
// More of the same would not be answered either.
const HOPELESS = new Set([401, 403, 404]);

/**
 * Keep `concurrency` requests going until `requests` were sent or the signal aborts.
 *
 * one(slot, number) sends a request and returns its sample; onSample(sample) is told of each.
 */
export async function load({ concurrency, requests, signal, one, onSample }) {
  let next = 0;
  let hopeless = false;
  async function slot(place) {
    while (next < requests && !signal.aborted && !hopeless) {
      const sample = await one(place, next++);
      hopeless ||= HOPELESS.has(sample.status);
      onSample(sample);
      if (sample.error && !hopeless) await pause(WAIT_AFTER_FAILURE, signal);
    }
  }
  const slots = Math.min(concurrency, requests);
  await Promise.all(Array.from({ length: slots }, (_, place) => slot(place)));
}

function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}
