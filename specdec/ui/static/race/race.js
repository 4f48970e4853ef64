// The race: two texts that grow on one clock, with its controls. Streamlit calls `default` each time the data changes, on the same
// element; the clock, its speed and its place live here and survive that.

// Every module is asked for with the same ?v=..., so that after an update no browser mixes old files with new ones.
const version = new URL(import.meta.url).search;
const [sheets, modules] = await Promise.all([
  Promise.all(["../stage", "../controls", "../compact", "../ask", "race"].map(style)),
  Promise.all(["../dom", "../words", "clock", "lane"].map((name) => import(`./${name}.js${version}`))),
  import(`../words.js${version}`).then((words) => words.fetchTexts(new URL("../../../texts/", import.meta.url), version)),
]);
const { h, icon, mark, say, t, withDrafter, RaceClock, SPEEDS, shownAt, lastOf, tellingMoment, winnerOf, Lane, clockTime, many } =
  Object.assign({}, ...modules);

async function style(name) {
  const answer = await fetch(new URL(`${name}.css${version}`, import.meta.url));
  if (!answer.ok) throw new Error(`The style sheet ${name}.css is missing: ${answer.status}.`);
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(await answer.text());
  return sheet;
}

const RACES = new WeakMap(); // element of Streamlit -> RaceView
const PLACES = new Map(); // run -> time at which it was left; survives page switches
const KEPT = 20;
const NARROW = 46; // rem: below, one side under the other
const NAMES = [t("race.plain"), t("race.speculative")];
let speed = 1; // chosen once for all races

export default function race({ parentElement, data }) {
  let it = RACES.get(parentElement);
  if (!it) RACES.set(parentElement, (it = new RaceView(parentElement)));
  it.update(data);
  const call = (it.call = (it.call ?? 0) + 1);
  return () => {
    if (it.call !== call) return; // a newer call has taken over
    it.leave();
    it.element.remove();
    RACES.delete(parentElement);
  };
}

class RaceView {
  constructor(parent) {
    const root = parent.getRootNode();
    if (!root.adoptedStyleSheets.includes(sheets[0])) root.adoptedStyleSheets = [...root.adoptedStyleSheets, ...sheets];
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    this.clock = new RaceClock({
      draw: (t, how) => this.draw(t, how),
      changed: () => this.drawControls(),
      frame: (callback) => requestAnimationFrame(callback),
      cancel: (handle) => cancelAnimationFrame(handle),
      now: () => performance.now(),
    });
    this.clock.speed = speed;
    this.build(parent);
    this.observer = new ResizeObserver(() => this.layOut());
    this.observer.observe(this.element);
    this.onWindowKey = (event) => this.windowKey(event);
    addEventListener("keydown", this.onWindowKey);
    this.onGo = (event) => this.present(event.detail) && event.preventDefault();
    addEventListener("specdec:go", this.onGo);
  }

  build(parent) {
    const item = (origin, text) => h("li", { class: `key ${origin}` }, h("span", { class: `t ${origin}` }, text));
    this.badgeIcon = h("span", {});
    this.badgeText = h("span", {});
    this.badge = h("span", { class: "badge" }, this.badgeIcon, this.badgeText);
    this.status = h("span", { class: "status" });
    const keys = [
      item("accepted", t("legend.accepted")),
      item("replacement", t("added.replacement")),
      item("bonus", t("added.bonus")),
      item("own", t("added.own")),
    ];
    const legend = h("ul", { class: "legend", "aria-label": t("legend") }, ...keys);
    this.lanes = [new Lane("plain", NAMES[0]), new Lane("speculative", NAMES[1])];
    this.spoken = h("p", { class: "hidden", role: "status", "aria-live": "polite" });
    this.notice = h("p", { class: "noticetext" });
    this.progress = h("progress", { max: "1", "aria-label": t("loading") });
    this.noticeBox = h("div", { class: "notice" }, this.notice, this.progress);
    this.element = h(
      "section",
      { class: "stage race", "aria-label": t("race"), tabindex: "-1" },
      this.spoken,
      h("div", { class: "top" }, this.badge, this.status, legend),
      h("div", { class: "lanes" }, ...this.lanes.map((lane) => lane.element)),
      this.buildControls(),
      this.noticeBox,
    );
    this.element.addEventListener("keydown", (event) => this.key(event));
    // After a click with the mouse the focus goes to the race itself, so that Space plays and the arrows step from then on.
    this.element.addEventListener("click", (event) => {
      const button = event.composedPath()[0].closest?.("button");
      if (event.detail > 0 && button) this.element.focus({ preventScroll: true });
    });
    parent.append(this.element);
  }

  buildControls() {
    const { clock } = this;
    const button = (name, label, onclick, ...more) =>
      h("button", { type: "button", class: name, "aria-label": label, title: label, onclick }, ...more);
    this.playIcon = h("span", { class: "playicon" });
    this.playText = h("span", {});
    this.play = h("button", { type: "button", class: "play", onclick: () => clock.toggle() }, this.playIcon, this.playText);
    this.first = button("first", t("race.start"), () => clock.seek(0), icon("first"));
    this.back = button("back", t("race.back"), () => clock.step(-1), icon("back"));
    this.step = button("step", t("race.on"), () => clock.step(1), icon("step"));
    this.last = button("last", t("race.end"), () => clock.seek(clock.length), icon("last"));
    this.range = h("input", {
      type: "range",
      min: "0",
      step: "any",
      "aria-label": t("race.time"),
      oninput: () => clock.seek(Number(this.range.value)),
    });
    this.marks = h("span", { class: "ticks", "aria-hidden": "true" }); // where each side is complete
    this.now = h("span", { class: "now" });
    const name = (s) => (s === 1 ? t("race.true_speed") : t("race.speed", { speed: s < 1 ? `1/${1 / s}` : `${s}×` }));
    this.speed = h(
      "select",
      { class: "speed", "aria-label": t("controls.speed"), onchange: () => clock.setSpeed((speed = Number(this.speed.value))) },
      ...SPEEDS.map((s) => new Option(name(s), String(s))),
    );
    this.controls = h(
      "div",
      { class: "controls", role: "group", "aria-label": t("controls") },
      this.first,
      this.back,
      this.play,
      this.step,
      this.last,
      h("span", { class: "scrub" }, this.marks, this.range),
      this.now,
      this.speed,
    );
    return this.controls;
  }

  // --- data ---------------------------------------------------------------------------------------------------------

  update(view) {
    const other = this.view?.run !== view.run;
    const clocked = view.clock && !(this.view?.clock && !other);
    if (other) {
      this.remember();
      this.clock.pause();
      this.said = null;
      this.lanes.forEach((lane) => lane.reset());
    }
    this.view = view;
    this.lanes.forEach((lane, i) => lane.update(view, view.lanes[i]));
    this.drawFrame();
    if (!view.clock) this.drawSoFar();
    else if (clocked) this.open(other);
    this.layOut();
  }

  /** A race whose times are known: one that was measured just now plays, a recording waits at the moment that says most. */
  open(other) {
    const { view, clock } = this;
    const kept = PLACES.get(view.run);
    const watched = !other || (view.kind === "live" && kept === undefined);
    const opening = watched && this.still.matches ? Infinity : tellingMoment(view.lanes);
    clock.begin(view.lanes, kept ?? opening, { fresh: kept === undefined });
    if (watched && !this.still.matches) clock.play();
  }

  remember() {
    if (!this.view?.clock) return;
    PLACES.delete(this.view.run);
    PLACES.set(this.view.run, this.clock.t);
    if (PLACES.size > KEPT) PLACES.delete(PLACES.keys().next().value);
  }

  leave() {
    this.remember();
    this.clock.pause();
    this.observer.disconnect();
    removeEventListener("keydown", this.onWindowKey);
    removeEventListener("specdec:go", this.onGo);
  }

  // --- drawing ------------------------------------------------------------------------------------------------------

  drawFrame() {
    const { view } = this;
    mark(this.badge, "hidden", !view.label);
    mark(this.badge, "data-kind", view.kind);
    if (this.kind !== view.kind) this.badgeIcon.replaceChildren(icon(view.kind === "recording" ? "tape" : "live"));
    this.kind = view.kind;
    say(this.badgeText, view.label);
    say(this.lanes[0].who, t("race.alone"));
    say(this.lanes[1].who, withDrafter(view));
    say(this.status, view.state === "stopped" ? t("race.stopped") : view.title);
    mark(this.status, "title", this.status.textContent || null);
    mark(this.element, "data-state", view.state);
    mark(this.element, "data-present", view.present);
    mark(this.element, "data-mark", view.lesson?.parts.join(" ") || null);
    mark(this.controls, "hidden", !view.clock);
    mark(this.noticeBox, "hidden", view.clock);
    say(this.notice, view.message);
    mark(this.progress, "hidden", view.state !== "loading");
    if (view.progress === null) this.progress.removeAttribute("value");
    else this.progress.value = view.progress;
    const [a, b] = view.lanes.map(lastOf);
    const length = Math.max(a ?? 0, b ?? 0);
    const at = [a, b].filter((t) => view.clock && t !== null && t < length);
    this.marks.replaceChildren(...at.map((t) => h("i", { style: `left:${(100 * t) / length}%` })));
  }

  /** While it is measured there is no clock yet: the texts grow as they come. */
  drawSoFar() {
    const { view } = this;
    const running = view.state === "running";
    const second = view.lanes[1].tokens.length > 0 || (running && view.lanes[0].finish !== null);
    const stands = (lane, busy) => {
      const count = lane.tokens.length;
      if (busy) return count ? t("race.so_far", { tokens: many(count) }) : t("race.reads");
      return count ? many(count) : running ? t("race.next") : "";
    };
    this.lanes.forEach((lane, i) => {
      const busy = running && (i === 1) === second;
      lane.drawSoFar(stands(view.lanes[i], busy), busy);
    });
    if (view.state !== "running") this.speak(view.message);
  }

  draw(at, how) {
    const { view } = this;
    const winner = winnerOf(view.lanes);
    const lead = clockTime(Math.abs((lastOf(view.lanes[0]) ?? 0) - (lastOf(view.lanes[1]) ?? 0)));
    this.lanes.forEach((lane, i) => lane.draw(at, i === winner ? t("race.first", { time: lead }) : ""));
    this.range.max = String(this.clock.length);
    this.range.value = String(at);
    this.range.style.setProperty("--done", `${(100 * at) / (this.clock.length || 1)}%`);
    say(this.now, clockTime(at));
    const complete = view.lanes.filter((lane) => shownAt(lane, at) === lane.tokens.length).length;
    // While the clock runs only the arrivals are spoken, otherwise every place that somebody goes to.
    if (how === "still" || complete !== this.complete) this.speak(this.sentence(at));
    this.complete = complete;
  }

  sentence(at) {
    const parts = this.view.lanes.map((lane, i) => {
      const count = shownAt(lane, at);
      if (count === lane.tokens.length) return t("race.say.complete", { name: NAMES[i], time: clockTime(lastOf(lane) ?? 0) });
      return t("race.say.so_far", { name: NAMES[i], n: count, tokens: many(lane.tokens.length) });
    });
    return `${t("race.say.after", { time: clockTime(at) })} ${parts.join(" ")}`;
  }

  drawControls() {
    const { clock } = this;
    const shape = clock.playing ? "pause" : clock.atEnd && !clock.fresh ? "again" : "play";
    if (this.shape !== shape) {
      this.playIcon.replaceChildren(icon(shape));
      say(this.playText, t(`controls.${shape}`));
      this.shape = shape;
    }
    mark(this.first, "disabled", clock.t <= 0);
    mark(this.back, "disabled", clock.t <= 0);
    mark(this.step, "disabled", clock.atEnd);
    mark(this.last, "disabled", clock.atEnd);
    mark(this.range, "aria-valuetext", clockTime(clock.t));
    mark(this.element, "data-playing", clock.playing);
    if (this.speed.value !== String(clock.speed)) this.speed.value = String(clock.speed);
  }

  /** Side by side or one under the other: by the room there is, measured in rem, so that a larger base font counts. */
  layOut() {
    const rem = parseFloat(getComputedStyle(document.documentElement).fontSize) || 16;
    mark(this.element, "data-width", this.element.clientWidth / rem < NARROW ? "narrow" : "wide");
  }

  speak(sentence) {
    if (this.said === sentence) return;
    this.said = sentence;
    say(this.spoken, sentence);
  }

  // --- keys ---------------------------------------------------------------------------------------------------------

  key(event) {
    const target = event.composedPath()[0];
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (target.matches?.("select")) return event.stopPropagation();
    if (target.matches?.("button") && (event.key === " " || event.key === "Enter")) return event.stopPropagation();
    if (target.matches?.(".text") && ["Home", "End", "PageUp", "PageDown"].includes(event.key)) return event.stopPropagation();
    this.command(event);
  }

  /** Space and the arrows also work while nothing on the page has the focus and the controls are in sight. */
  windowKey(event) {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    if (document.activeElement && document.activeElement !== document.body) return;
    if (![" ", "ArrowLeft", "ArrowRight"].includes(event.key)) return;
    const box = this.controls.getBoundingClientRect();
    if (box.height && box.top >= 0 && box.bottom <= innerHeight) this.command(event);
  }

  /** A key in front of a class. Space starts the race, then ends it; returns false where there is no more of it here. */
  present(what) {
    const { clock } = this;
    if (!this.view?.clock) return false;
    if (what === "on") {
      if (clock.atEnd && !clock.fresh) return false;
      if (clock.playing || this.still.matches) clock.seek(clock.length);
      else clock.play();
    } else if (what === "back") {
      if (clock.t <= 0 || clock.fresh) return false;
      clock.seek(0);
    } else clock.seek(what === "end" ? clock.length : 0);
    return true;
  }

  command(event) {
    const { clock } = this;
    const act = {
      " ": () => clock.toggle(),
      ArrowRight: () => clock.step(1),
      ArrowLeft: () => clock.step(-1),
      Home: () => clock.seek(0),
      End: () => clock.seek(clock.length),
    }[event.key];
    if (!act || !this.view?.clock) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  }
}
