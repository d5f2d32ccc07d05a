// What the stage observe knows of the cluster: engines, hosts, alerts, spend.

const USER = "observe";
// A file that is older was not written again in time.
const OLD_SECONDS = 90;

/** Return what is known of the cluster, or null where nothing is, or the key does not open it. */
export async function cluster(key) {
  try {
    const headers = { Authorization: `Basic ${btoa(`${USER}:${await observerKey(key)}`)}` };
    const response = await fetch("cluster.json", { headers, cache: "no-store", credentials: "omit" });
    return response.ok ? await response.json() : null;
  } catch {
    return null;
  }
}

// Made of the engines' key, as on the hosts: it opens figures alone.
async function observerKey(key) {
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(`observe ${key}`));
  return Array.from(new Uint8Array(digest), (one) => one.toString(16).padStart(2, "0")).join("");
}

/** Show it in a section whose parts carry their names as data-part. */
export function show(place, found, now = Date.now() / 1000) {
  const part = (name) => place.querySelector(`[data-part="${name}"]`);
  const old = now - found.written > OLD_SECONDS;
  part("age").classList.toggle("bad", old || Boolean(found.problem));
  part("title").textContent = `Cluster ${found.cluster}`;
  const when = new Date(found.written * 1000).toLocaleTimeString();
  part("age").textContent = [
    `figures of ${when}${old ? ", which is old: see that observe-facts runs on the head" : ""}`,
    found.problem,
    `door: ${found.door}`,
  ]
    .filter(Boolean)
    .join("; ");
  rows(part("alerts"), found.alerts.map(alertCells));
  // Where the figures are old or missing, nothing says that all is well.
  part("calm").hidden = old || Boolean(found.problem) || found.alerts.some((one) => one.ended === null);
  rows(part("engines"), found.engines.flatMap(engineCells));
  rows(part("hosts"), found.hosts.map(hostCells));
  rows(part("devices"), found.hosts.flatMap((host) => host.devices.map((one) => deviceCells(host, one))));
  for (const name of ["alerts", "devices"]) {
    part(name).closest("table").hidden = part(name).childElementCount === 0;
  }
  part("spend").textContent = found.problem ? "" : spend(found.spend);
}

function rows(body, all) {
  body.replaceChildren(
    ...all.map((cells) => {
      const row = document.createElement("tr");
      row.append(
        ...cells.map(({ text, bad = false }, place) => {
          const cell = document.createElement(place === 0 ? "th" : "td");
          cell.textContent = text;
          cell.classList.toggle("bad", bad);
          return cell;
        }),
      );
      return row;
    }),
  );
}

const known = (value, text) => ({ text: value === null || value === undefined ? "–" : text(value) });
const number = (value, digits = 0) => known(value, (one) => one.toFixed(digits));
const percent = (value) => known(value, (one) => `${(100 * one).toFixed(0)} %`);
const state = (text) => ({ text, bad: text === "no answer" });
const gib = (value) => (value / 2 ** 30).toFixed(0);
const moment = (at) => new Date(at).toLocaleString();

function alertCells(one) {
  const firing = one.ended === null;
  const when = firing ? `since ${moment(one.since)}` : `ended ${moment(one.ended * 1000)}`;
  return [{ text: one.name, bad: firing }, { text: when }, { text: one.summary }, { text: one.fix }];
}

function beside(value, limit) {
  const said = value === null ? "–" : `${(1000 * value).toFixed(0)} ms`;
  const bound = limit === null ? "no limit is planned" : `limit ${(1000 * limit).toFixed(0)} ms`;
  return { text: `${said} (${bound})`, bad: value !== null && limit !== null && value > limit };
}

// An engine's own figures stand in the row of its first rank.
function engineCells(engine) {
  return engine.ranks.map((rank, place) => [
    { text: place === 0 ? `${engine.name} (${engine.model}), ${engine.layout}` : "" },
    { text: `${rank.rank} on ${engine.ranks.length === 1 ? engine.hosts.join(", ") : rank.host}` },
    state(rank.state),
    number(rank.running),
    number(rank.waiting),
    number(rank.tokens, 1),
    percent(rank.cache),
    place === 0 ? beside(engine.first_token, engine.first_token_limit) : { text: "" },
    place === 0 ? beside(engine.inter_token, engine.inter_token_limit) : { text: "" },
  ]);
}

function hostCells(host) {
  const used = host.in_use.length;
  return [
    { text: host.name },
    state(host.state),
    { text: host.accelerator },
    { text: String(used) },
    { ...number(host.answering), bad: host.answering !== null && host.answering < used },
  ];
}

function deviceCells(host, one) {
  const wrong = [...one.unwell, ...one.throttled.map((reason) => `slowed down: ${reason}`)];
  return [
    { text: `${host.name}, ${one.device}` },
    { text: one.name },
    { text: host.in_use.includes(Number(one.device)) ? "in use" : "free" },
    percent(one.utilization),
    known(one.memory, (most) => `${known(one.memory_used, gib).text} of ${gib(most)} GiB`),
    known(one.temperature, (value) => `${value.toFixed(0)} °C`),
    known(one.power, (value) => `${value.toFixed(0)} W`),
    { text: wrong.join(", ") || "–", bad: wrong.length > 0 },
  ];
}

function spend(found) {
  if (found === null) return "no rented machines";
  const dollars = (value) => `$${value.toFixed(2)}`;
  return [
    `spent so far ${dollars(found.usd)}`,
    found.usd_per_hour === null ? "" : `${dollars(found.usd_per_hour)} an hour`,
    found.limit_usd === null ? "no limit" : `limit ${dollars(found.limit_usd)}`,
  ]
    .filter(Boolean)
    .join(", ");
}
