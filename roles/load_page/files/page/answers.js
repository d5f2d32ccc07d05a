// Streamed answers side by side: one panel for each of the first requests in flight.

const MOST_PANELS = 8;
const MOST_LETTERS = 4000;

export class Answers {
  #panels = [];

  /** place: the element that the panels go into; slots: how many requests are in flight. */
  constructor(place, slots) {
    this.#panels = Array.from({ length: Math.min(slots, MOST_PANELS) }, panel);
    place.replaceChildren(...this.#panels.map(({ box }) => box));
  }

  /** Keep text of a slot's answer until the next drawing; null begins the next answer. */
  add(slot, text, number) {
    const place = this.#panels[slot];
    if (!place) return;
    place.fresh = true;
    if (text === null) Object.assign(place, { number, said: "" });
    else if (place.said.length < MOST_LETTERS) place.said += text;
  }

  /** Show what was kept. Not at every arrival: laying out text would delay the next one. */
  draw() {
    for (const place of this.#panels.filter(({ fresh }) => fresh)) {
      place.fresh = false;
      place.title.textContent = `request ${place.number + 1}`;
      place.text.textContent = place.said;
      place.text.scrollTop = place.text.scrollHeight;
    }
  }
}

function panel() {
  const [box, title, text] = ["article", "h3", "p"].map((name) => document.createElement(name));
  box.append(title, text);
  return { box, title, text, number: 0, said: "", fresh: false };
}
