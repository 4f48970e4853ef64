// What a card of the lesson and the keys of a presenter want of the stage: where it opens, what is outlined, how far it goes.

const version = new URL(import.meta.url).search;
const { mark } = await import(`./dom.js${version}`);
const { placeOf } = await import(`./model.js${version}`);

export class Presenter {
  constructor() {
    this.card = null; // the card that the stage was opened for
    this.bounds = null; // [first, last] step that it speaks of
    this.onGo = null;
  }

  /** Take what the page says. Returns where a card that is new here opens the run, else null. */
  take(element, { lesson, present }, steps) {
    mark(element, "data-present", present);
    mark(element, "data-mark", lesson?.parts.join(" ") || null);
    const fresh = lesson && lesson.card !== this.card;
    this.bounds = lesson?.at && steps.length ? [placeOf(steps, lesson.at), placeOf(steps, lesson.until)] : null;
    if (lesson && !steps.length) return null; // it opens as soon as there is something to open
    this.card = lesson?.card ?? null;
    return fresh && this.bounds ? { index: this.bounds[0], playing: false, following: false } : null;
  }

  /**
   * A key in front of a class: "on", "back", "start" or "end". @returns whether the stage did something; false means that there
   * is no more of it here, and the lesson goes on.
   */
  go(what, player, prediction) {
    if (!player.steps.length) return false;
    const [first, last] = this.bounds ?? [0, player.steps.length - 1];
    if (prediction.asking && what === "on") prediction.answer(null);
    else if (prediction.asking && what === "back") player.go(player.index);
    else if (what === "on" && player.atEnd && player.active) return true; // a live run: its next round is on the way
    else if ((what === "on" && player.index >= last) || (what === "back" && player.index <= first)) return false;
    else player.go({ on: player.index + 1, back: player.index - 1, start: first, end: last }[what]);
    return true;
  }

  listen(go) {
    this.onGo = (event) => go(event.detail) && event.preventDefault();
    addEventListener("specdec:go", this.onGo);
  }

  leave() {
    removeEventListener("specdec:go", this.onGo);
  }
}
