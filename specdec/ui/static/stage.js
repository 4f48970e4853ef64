// The stage: one animated round of speculative decoding, with its controls. Streamlit calls `default` each time the data changes,
// on the same element; everything else (place in the run, playing, speed, choice) lives here and survives that.

// Every module is asked for with the same ?v=..., so that after an update no browser mixes old files with new ones.
const version = new URL(import.meta.url).search;
const MODULES = ["dom", "model", "words", "reasons", "player", "motion", "cards", "panels", "textbox", "frame", "predict", "ask", "presenter"];
const SHEETS = ["stage", "cards", "panels", "controls", "compact", "ask"];
const [sheets, modules] = await Promise.all([
  Promise.all(SHEETS.map(style)),
  Promise.all(MODULES.map((name) => import(`./${name}.js${version}`))),
  import(`./words.js${version}`).then((words) => words.fetchTexts(new URL("../../texts/", import.meta.url), version)),
]);
const { h, say, mark, t, seenAt, speaksOf, stepsOf, caption, announce, Player, Motion, Cards, Clock, Places, Why, tableOf } =
  Object.assign({}, ...modules);
const { TextBox, Blank, Controls, Heading, Top, isActive, Prediction, Presenter } = Object.assign({}, ...modules);

async function style(name) {
  const answer = await fetch(new URL(`${name}.css${version}`, import.meta.url));
  if (!answer.ok) throw new Error(`The style sheet ${name}.css is missing: ${answer.status}.`);
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(await answer.text());
  return sheet;
}

const STAGES = new WeakMap(); // element of Streamlit -> Stage
const PLACES = new Map(); // run -> where it was left; survives page switches
const KEPT = 50;
const NARROW = 50; // rem: below, one column
const MEDIUM = 66; // rem: below, smaller type
const MANY = 6; // more drafts than this are shown as chips, and fewer where there is no room
const CARD = 9.5; // rem that a card needs
let speed = 1; // chosen once for all runs

export default function stage({ parentElement, data, setStateValue, setTriggerValue }) {
  let it = STAGES.get(parentElement);
  if (!it) STAGES.set(parentElement, (it = new Stage(parentElement)));
  it.choose = (value) => setStateValue("selected", value);
  it.tellPredict = (on) => setTriggerValue("predict", { on });
  it.update(data);
  const call = (it.call = (it.call ?? 0) + 1);
  return () => {
    if (it.call !== call) return; // a newer call has taken over
    it.leave();
    it.element.remove();
    STAGES.delete(parentElement);
  };
}

class Stage {
  constructor(parent) {
    const root = parent.getRootNode();
    if (!root.adoptedStyleSheets.includes(sheets[0])) root.adoptedStyleSheets = [...root.adoptedStyleSheets, ...sheets];
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    this.run = null;
    this.selected = null;
    this.drawnRound = null;
    this.build(parent);
    this.observer = new ResizeObserver(() => this.layOut());
    this.observer.observe(this.element);
    this.onWindowKey = (event) => this.windowKey(event);
    addEventListener("keydown", this.onWindowKey);
    this.presenter.listen((what) => this.presenter.go(what, this.player, this.prediction));
  }

  build(parent) {
    this.top = new Top();
    this.text = new TextBox((round, token) => this.pickInText(round, token));
    this.bracketText = h("span", {});
    this.bracket = h("div", { class: "bracket" }, h("i", {}), this.bracketText, h("i", {}));
    this.sweep = h("div", { class: "sweep", "aria-hidden": "true" });
    this.cards = new Cards((token) => this.pick(token));
    this.cards.element.append(this.sweep);
    this.why = new Why();
    this.places = new Places();
    this.prediction = new Prediction(this);
    this.presenter = new Presenter();
    this.clock = new Clock();
    this.blank = new Blank();
    this.spoken = h("p", { class: "hidden", role: "status", "aria-live": "polite" });
    this.table = h("details", { class: "table" }, h("summary", {}, t("table")));
    this.table.addEventListener("toggle", () => this.drawTable());
    this.element = h("section", { class: "stage", "aria-label": t("stage"), tabindex: "-1" });
    this.motion = new Motion(this.element);
    this.player = new Player({
      show: (index, how) => this.show(index, how),
      timer: (ms, done) => this.motion.timer(ms, done),
      changed: () => this.drawControls(),
      gate: (index) => this.prediction.gate(index),
    });
    this.player.speed = speed;
    const goRound = (round, phase) => this.player.goRound(round, phase);
    this.heading = new Heading({ goRound, more: this.prediction.switch.element });
    this.controls = new Controls({ player: this.player });
    const boxes = [this.prediction.ask, this.why, this.places, this.clock].map((box) => box.element);
    const below = h("div", { class: "below" }, ...boxes);
    this.element.append(
      this.spoken,
      this.top.element,
      this.text.element,
      this.heading.element,
      this.bracket,
      this.cards.element,
      below,
      this.blank.element,
      this.controls.element,
      this.table,
    );
    this.element.addEventListener("keydown", (event) => this.key(event));
    // After a click with the mouse the focus goes to the stage itself, so that Space plays and the arrows step from then on.
    this.element.addEventListener("click", (event) => {
      const button = event.composedPath()[0].closest?.("button");
      if (event.detail > 0 && button) this.element.focus({ preventScroll: true });
    });
    // In front of a class the keys belong to the stage again as soon as a round was chosen from the list.
    this.element.addEventListener("change", () => this.view.present && this.element.focus({ preventScroll: true }));
    parent.append(this.element);
  }

  // --- data ---------------------------------------------------------------------------------------------------------

  update(view) {
    const other = this.run !== view.run;
    if (other) this.remember();
    const steps = stepsOf(view.rounds, view.method);
    this.view = view;
    const state = { active: isActive(view) };
    const opened = this.presenter.take(this.element, view, steps);
    if (other) {
      this.run = view.run;
      this.text.reset();
      this.drawnRound = this.step = this.said = null;
      const kept = PLACES.get(view.run);
      this.selected = kept?.selected ?? null;
      this.text.update(view, view.rounds);
      this.drawFrame();
      this.layOut();
      this.player.begin(steps, view.rounds, { ...state, ...(opened ?? kept ?? this.opening(view, steps)) });
    } else {
      this.text.update(view, view.rounds);
      this.drawFrame();
      this.player.update(steps, view.rounds, state);
      if (opened) this.player.go(opened.index);
    }
    this.prediction.take(view);
  }

  /** Where a run starts that was not seen before: a live one plays and follows, a recording waits for Play. */
  opening(view, steps) {
    const playing = view.play && !(view.kind === "recording" && this.still.matches);
    const index = steps.findIndex((s) => s.round === view.start_round);
    return { index: Math.max(0, index), playing, following: playing && isActive(view) };
  }

  remember() {
    if (!this.run) return;
    const { index, playing, following } = this.player;
    PLACES.delete(this.run);
    PLACES.set(this.run, { index, playing, following, selected: this.selected });
    if (PLACES.size > KEPT) PLACES.delete(PLACES.keys().next().value);
    speed = this.player.speed;
  }

  leave() {
    this.remember();
    this.player.stop();
    this.motion.finish();
    this.observer.disconnect();
    removeEventListener("keydown", this.onWindowKey);
    this.prediction.leave();
    this.presenter.leave();
  }

  // --- drawing ------------------------------------------------------------------------------------------------------

  drawFrame() {
    const { view } = this;
    this.top.draw(view, this.text.tokens.length);
    const none = !view.rounds.length;
    mark(this.element, "data-none", none);
    mark(this.element, "data-state", view.state);
    if (none) this.speak(this.blank.draw(view));
    else if (view.state === "failed") this.speak(t("failed", { message: view.message }));
  }

  /** Draw step `index`. how: see Player. */
  show(index, how) {
    const { view } = this;
    const step = this.player.steps[index];
    const round = view.rounds[step.round];
    const moving = how === "move" && !this.still.matches;
    if (how !== "append") {
      this.motion.finish();
      this.prediction.shown();
    }
    if (this.drawnRound !== step.round) {
      this.cards.build(view, round, step.round);
      this.clock.build(view, round, step.round);
      this.drawnRound = step.round;
      this.drawTable();
      this.layOut();
    }
    this.step = step;
    this.drawStep();
    if (how !== "append") {
      const committed = step.phase === "commit";
      this.text.show(step.round + (committed ? 1 : 0), { fresh: committed, smooth: moving });
    }
    if (moving) this.move(step, round);
    if (how !== "append") this.speakStep(step, round);
  }

  drawStep() {
    const { view, step } = this;
    if (!step) return;
    const round = view.rounds[step.round];
    if (this.prediction.draw(round)) return;
    const token = speaksOf(step, round, this.selected);
    mark(this.element, "data-phase", step.phase);
    mark(this.bracket, "data-pass", seenAt(step, round).p);
    say(this.bracketText, caption(view, round, step));
    this.cards.draw(view, round, step, token, this.selected?.round === step.round ? this.selected.token : null);
    this.why.draw(view, round, step, token);
    this.places.draw(view, round, step, token);
    this.clock.draw(step);
    this.heading.draw(view, round, step);
  }

  move(step, round) {
    const { cards, clock, bracket, sweep, why, places } = this;
    const spans = step.phase === "commit" ? this.text.spansOf(step.round) : [];
    const words = [why.title, why.text, places.title, places.text, places.rows, places.foot];
    this.motion.rate(this.player.rate);
    this.motion[step.phase]({
      cards,
      clock,
      bracket,
      sweep,
      step,
      round,
      spans,
      words,
      caret: this.text.caret,
      ahead: this.text.ahead,
    });
  }

  drawControls() {
    if (!this.view) return;
    const { player, step } = this;
    this.motion.rate(player.rate);
    if (player.playing !== this.wasPlaying) {
      if (player.playing) this.motion.resume();
      else if (player.timer) this.motion.pause();
      this.wasPlaying = player.playing;
    }
    const phase = step ? `${t(`phase.${step.phase}`).toLowerCase()}${step.token === null ? "" : ` ${step.token + 1}`}` : "";
    const where = step ? t("controls.where", { round: step.round + 1, n: player.rounds.length, phase }) : "";
    this.controls.draw(this.view, where);
    mark(this.element, "data-waiting", player.playing && player.atEnd && player.active && !player.timer);
  }

  drawTable() {
    const drawn = this.table.querySelector("table");
    if (!this.table.open || this.drawnRound === null) return drawn?.remove();
    const table = tableOf(this.view, this.view.rounds[this.drawnRound], this.drawnRound);
    if (drawn) drawn.replaceWith(table);
    else this.table.append(table);
  }

  /** Cards or chips, three columns or one: by the room there is, measured in rem, so that a larger base font counts. */
  layOut() {
    const rem = parseFloat(getComputedStyle(document.documentElement).fontSize) || 16;
    const width = this.element.clientWidth / rem;
    const drafts = this.cards.drafts ?? 0;
    const chips = width < NARROW || drafts > MANY || (drafts + 1) * CARD > width;
    mark(this.element, "data-width", width < NARROW ? "narrow" : width < MEDIUM ? "medium" : "wide");
    mark(this.element, "data-layout", chips ? "chips" : "cards");
  }

  // --- speaking -----------------------------------------------------------------------------------------------------

  /** Played fast, only the end of each round is spoken; otherwise every state. */
  speakStep(step, round) {
    if (this.player.playing && this.player.rate > 1.5 && step.phase !== "commit") return;
    this.speak(this.prediction.spoken(announce(this.view, round, step)));
  }

  speak(sentence) {
    if (this.said === sentence) return;
    this.said = sentence;
    say(this.spoken, sentence);
  }

  // --- choosing and keys --------------------------------------------------------------------------------------------

  pick(token) {
    if (this.prediction.hides(token, seenAt(this.step, this.view.rounds[this.step.round]))) return;
    const same = this.selected?.round === this.step.round && this.selected.token === token;
    this.select(same ? null : { round: this.step.round, token });
  }

  pickInText(round, token) {
    this.player.goRound(round, "commit");
    this.select({ round, token });
  }

  select(selected) {
    this.selected = selected;
    if (this.player.playing) this.player.pause();
    this.drawStep();
    this.choose({ run: this.run, ...(selected ?? { round: null, token: null }) });
  }

  key(event) {
    const target = event.composedPath()[0];
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (target.matches?.("select")) return event.stopPropagation();
    if (target.matches?.("input") && event.key !== " ") return event.stopPropagation();
    if (target.matches?.("button, summary") && (event.key === " " || event.key === "Enter")) return event.stopPropagation();
    if (target === this.text.element && ["Home", "End"].includes(event.key)) return event.stopPropagation();
    this.command(event);
  }

  /** Space and the arrows also work while nothing on the page has the focus and the stage is in sight. */
  windowKey(event) {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    if (document.activeElement && document.activeElement !== document.body) return;
    if (![" ", "ArrowLeft", "ArrowRight"].includes(event.key)) return;
    const box = this.controls.element.getBoundingClientRect();
    if (box.height && box.top >= 0 && box.bottom <= innerHeight) this.command(event);
  }

  command(event) {
    const { player } = this;
    const act = {
      " ": () => (this.prediction.asking ? this.prediction.answer(null) : player.toggle()),
      ArrowRight: () => player.go(player.index + 1),
      ArrowLeft: () => player.go(player.index - 1),
      Home: () => player.go(0),
      End: () => player.go(player.steps.length - 1),
      PageDown: () => player.goRound((this.step?.round ?? 0) + 1),
      PageUp: () => player.goRound((this.step?.round ?? 0) - 1),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    if (player.steps.length) act();
  }
}
