// Predict first on the stage: the box that asks "accept or reject?" in the place of the one that would explain, the switch beside
// the states of a round, and what happens between a question and its answer.

const version = new URL(import.meta.url).search;
const { h, mark, say } = await import(`./dom.js${version}`);
const { Score, fill, questionsBefore } = await import(`./predict.js${version}`);
const { num, pair, quoted, spoken, visible } = await import(`./words.js${version}`);

const SCORES = new Map(); // run -> Score; only here, gone with the tab
const KEYS = { verdict: ["A", "R"], replacement: ["1", "2", "3", "4"] };

/** Number of the option that a key means, null for other keys. */
export function optionOf(question, key) {
  const index = KEYS[question.kind].indexOf(key.toUpperCase());
  return index >= 0 && index < question.options.length ? index : null;
}

/** { title, text, options, spoken } of a question. last: how the one before it was answered, null if there was none. */
export function wordsOf(texts, view, round, question, last) {
  const draft = round.drafts[question.token];
  const mode = view.greedy ? "greedy" : "sampled";
  const [p, q] = pair(draft.p, draft.q);
  const values = { token: quoted(draft.text, 16), p, q, u: num(draft.u) };
  const verdict = question.kind === "verdict";
  const title = fill(texts[`${question.kind}.${mode}.title`], values);
  const text = fill(texts[`${question.kind}.${mode}`], values);
  const options = verdict ? question.options.map((name) => texts[`${name}.${mode}`]) : question.options.map(visible);
  const said = verdict ? options : question.options.map(spoken);
  const keys = KEYS[question.kind];
  const before = (sign) => (last === null ? "" : resultOf(texts, last, sign));
  return {
    title: [before(true), title].filter(Boolean).join(" "),
    text,
    options,
    spoken: [before(false), title, text, said.map((o, i) => `${keys[i]}: ${o}`).join(", ")].join(" "),
  };
}

/** "✓ Right.", "✕ Not this time."; nothing where the answer was only shown. */
export const resultOf = (texts, right, sign = true) =>
  right === null ? "" : `${sign ? (right ? "✓ " : "✕ ") : ""}${right ? texts.right : texts.wrong}`;

export class Ask {
  /** @param answer (number of the option, or null for "show me") => void */
  constructor(answer) {
    this.answer = answer;
    this.title = h("h3", {});
    this.text = h("p", {});
    this.choices = h("div", { class: "choices" });
    this.showMe = h("button", { type: "button", class: "showme", onclick: () => answer(null) });
    this.element = h("section", { class: "box ask", hidden: true }, this.title, this.text, this.choices);
  }

  draw(texts, view, round, question, last) {
    const words = wordsOf(texts, view, round, question, last);
    mark(this.element, "data-kind", question.kind);
    mark(this.element, "aria-label", words.title);
    say(this.title, words.title);
    say(this.text, words.text);
    say(this.showMe, texts.show);
    if (this.drawn !== question.key) {
      this.drawn = question.key;
      this.choices.replaceChildren(
        ...words.options.map((option, i) =>
          h(
            "button",
            { type: "button", class: "choice", onclick: () => this.answer(i) },
            h("kbd", { "aria-hidden": "true" }, KEYS[question.kind][i]),
            h("bdi", question.kind === "verdict" ? {} : { class: "tok" }, option),
          ),
        ),
        this.showMe,
      );
    }
    return words;
  }
}

/** The switch, with the count beside it once something was answered. */
export class PredictSwitch {
  constructor(toggle) {
    this.score = h("span", { class: "score" });
    this.button = h("button", { type: "button", class: "pill predict", "aria-pressed": "false", onclick: toggle });
    this.element = h("div", { class: "predicting" }, this.score, this.button);
  }

  draw(texts, on, counts, result) {
    say(this.button, texts.switch);
    mark(this.button, "title", texts.help);
    mark(this.button, "aria-pressed", on ? "true" : "false");
    const count = counts.total ? fill(texts.score, counts) : "";
    say(this.score, on ? [result === null ? "" : resultOf(texts, result), count].filter(Boolean).join(" ") : "");
    mark(this.score, "data-right", on && result !== null ? String(result) : null);
  }
}

/** The questions on a stage: when one is open, what was answered, and what must not show meanwhile. */
export class Prediction {
  constructor(stage) {
    this.stage = stage;
    this.on = false;
    this.asking = null; // { questions, last, playing } while a question is open
    this.result = null; // of the answer whose verdict is being shown: true, false, null
    this.ask = new Ask((option) => this.answer(option));
    this.switch = new PredictSwitch(() => this.toggle());
    this.onKey = (event) => this.key(event);
    addEventListener("keydown", this.onKey, true);
  }

  leave() {
    removeEventListener("keydown", this.onKey, true);
  }

  get texts() {
    return this.stage.view.predict.texts;
  }

  get score() {
    const { run } = this.stage;
    if (!SCORES.has(run)) SCORES.set(run, new Score());
    return SCORES.get(run);
  }

  /** What the page says: the switch may have been set by the address. It counts when it changes, the switch here at all times. */
  take({ predict }) {
    if (predict && predict.on !== this.told) this.on = this.told = predict.on;
    mark(this.switch.element, "hidden", !predict);
    this.drawSwitch();
  }

  toggle() {
    this.on = !this.on;
    SCORES.delete(this.stage.run);
    this.shown();
    this.stage.drawStep();
    this.stage.tellPredict(this.on);
  }

  /** May step `index` show? Not before its questions were asked. */
  gate(index) {
    const { stage } = this;
    if (!this.on || !stage.view.predict) return true;
    if (this.asking) {
      queueMicrotask(() => this.asking && this.answer(null)); // going on over an open question shows its answer
      return false;
    }
    const questions = questionsBefore(stage.view, stage.player.steps[index]).filter((q) => !this.score.has(q.key));
    if (!questions.length) return true;
    stage.motion.finish();
    this.asking = { questions, last: null, playing: stage.player.playing };
    this.result = stage.selected = null;
    stage.drawStep();
    this.drawSwitch();
    return false;
  }

  /** option: number of the one that was chosen; null: the answer is only shown and does not count. */
  answer(option) {
    const { stage } = this;
    const { questions, playing } = this.asking;
    const focused = this.ask.element.contains(stage.element.getRootNode().activeElement);
    const question = questions.shift();
    const right = option === null ? null : option === question.answer;
    this.score.add(question.key, right);
    if (focused) stage.element.focus({ preventScroll: true });
    if (!questions.length) {
      this.revealing = right;
      stage.player.proceed({ playing });
      this.revealing = null;
      return;
    }
    this.asking.last = right;
    stage.drawStep();
    this.drawSwitch();
  }

  /** Another step shows. */
  shown() {
    this.asking = null;
    this.result = this.revealing ?? null;
    this.drawSwitch();
  }

  /** The question stands where the explanation will; of the two distributions only what gives nothing away. */
  draw(round) {
    const { stage, asking } = this;
    const { view, step } = stage;
    mark(stage.element, "data-asking", asking !== null);
    mark(this.ask.element, "hidden", asking === null);
    if (asking === null) return false;
    const question = asking.questions[0];
    stage.cards.draw(view, round, step, question.token, null);
    stage.places.draw(view, round, step, question.kind === "replacement" && !view.greedy ? question.token : null);
    stage.speak(this.ask.draw(this.texts, view, round, question, asking.last).spoken);
    // On a phone the question lies below the cards: it is brought into sight once.
    if (asking.brought !== question.key && stage.element.dataset.width === "narrow") {
      this.ask.element.scrollIntoView({ block: "center" });
    }
    asking.brought = question.key;
    return true;
  }

  drawSwitch() {
    if (this.stage.view?.predict) this.switch.draw(this.texts, this.on, this.score.counts, this.result);
  }

  /** What a screen reader hears of a step, with the result around it. */
  spoken(sentence) {
    if (this.result === null) return sentence;
    return [resultOf(this.texts, this.result, false), sentence, fill(this.texts.spoken, this.score.counts)].join(" ");
  }

  /** While predictions are made, nobody looks behind a card that was not judged yet. */
  hides(token, seen) {
    return this.on && !seen.committed && (token === "outcome" || token >= seen.verdicts);
  }

  key(event) {
    const target = event.composedPath()[0];
    if (!this.asking || event.ctrlKey || event.metaKey || event.altKey) return;
    if (target.matches?.("input:not([type=range], [type=checkbox], [type=radio]), textarea, select, [contenteditable]")) return;
    const option = optionOf(this.asking.questions[0], event.key);
    if (option === null) return;
    event.preventDefault();
    event.stopPropagation(); // R alone would run the page again
    this.answer(option);
  }
}
