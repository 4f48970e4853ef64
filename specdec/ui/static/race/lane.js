// One side of the race: its text, its own time, its tokens and passes.

const version = new URL(import.meta.url).search;
const { h, mark, say } = await import(`../dom.js${version}`);
const { TextJoiner } = await import(`../model.js${version}`);
const { decimals, ending, t, tn } = await import(`../words.js${version}`);
const { firstOf, lastOf, passesAt, shownAt } = await import(`./clock.js${version}`);

const TURNS = /[\u200e\u200f\u202a-\u202e\u2066-\u2069]/; // characters that could turn the rest of the text around

/** "0.84 s": two decimals, so that the digits do not jump while the clock runs. */
export const many = (n) => tn("tokens", n);
export const clockTime = (seconds) => `${decimals(seconds, 2)} s`;

export class Lane {
  constructor(name, title) {
    this.title = h("h3", {}, title);
    this.who = h("span", { class: "who" });
    this.time = h("span", { class: "time" });
    this.first = h("span", { class: "won" });
    this.prompt = h("span", { class: "prompt" });
    this.gap = h("br", {});
    this.output = h("span", { class: "output" });
    this.caret = h("span", { class: "caret", "aria-hidden": "true" });
    this.text = h("div", { class: "text", role: "region", "aria-label": t("race.text", { name: title }), tabindex: "0" });
    this.text.append(this.prompt, this.gap, this.output, this.caret);
    this.fill = h("i", {});
    this.bar = h("div", { class: "track", "aria-hidden": "true" }, this.fill);
    this.count = h("p", { class: "count" });
    this.element = h(
      "div",
      { class: `lane ${name}`, role: "group", "aria-label": title },
      h("div", { class: "lanehead" }, this.title, this.who, this.first, this.time),
      this.text,
      this.bar,
      this.count,
    );
    this.reset();
  }

  reset() {
    this.joiner = new TextJoiner();
    this.spans = [];
    this.shown = -1;
    this.output.replaceChildren();
  }

  /** Take in the tokens; what is shown does not change. */
  update(view, lane) {
    this.lane = lane;
    say(this.prompt, view.prompt);
    mark(this.gap, "hidden", view.raw || !view.prompt);
    const before = this.spans.length;
    if (lane.tokens.length < before) this.reset();
    for (const token of lane.tokens.slice(this.spans.length)) {
      const text = this.joiner.add({ text: token.text, bytes: token.bytes ?? null }).text;
      const span = h("span", { class: `t ${token.origin}`, hidden: true, title: t(`origin.${token.origin}`) }, text);
      mark(span, "data-newline", /\n/.test(text));
      mark(span, "data-turns", TURNS.test(text));
      this.spans.push(span);
      this.output.append(span);
    }
    this.spans.forEach((span, i) => {
      mark(span, "data-end", lane.finish === "eos" && i === this.spans.length - 1);
      mark(span, "data-parts", view.difference === i);
    });
  }

  /** Before there is a clock: all that has been decoded so far. words: how it stands. */
  drawSoFar(words, busy) {
    this.show(this.spans.length, this.lane.ends.at(-2) ?? 0);
    say(this.time, "");
    say(this.first, "");
    mark(this.element, "data-state", busy ? "busy" : "waiting");
    mark(this.element, "data-won", false);
    this.fill.style.transform = "scaleX(0)";
    say(this.count, words);
  }

  /** At time t of the clock. won: "first, by 0.90 s" once the race is decided. */
  draw(at, won) {
    const { lane } = this;
    const count = shownAt(lane, at);
    const end = lastOf(lane);
    const complete = count === lane.tokens.length;
    const from = lane.ends.findLast((e) => e < count) ?? 0;
    this.show(count, complete ? count : from);
    say(this.time, end === null ? "–" : clockTime(Math.min(at, end)));
    say(this.first, complete && end !== null ? `✓ ${won || t("race.complete")}` : "");
    mark(this.element, "data-state", complete ? "complete" : count ? "running" : "reading");
    mark(this.element, "data-won", complete && Boolean(won));
    this.fill.style.transform = `scaleX(${lane.tokens.length ? count / lane.tokens.length : 0})`;
    say(this.count, this.words(at, count, complete));
  }

  words(at, count, complete) {
    const { lane } = this;
    if (!lane.tokens.length) return t("race.none");
    if (!count) return t(at < lane.prefill ? "race.reads" : "race.pass");
    const passes = passesAt(lane, at);
    const parts = [
      complete ? many(count) : t("race.of", { n: count, tokens: many(lane.tokens.length) }),
      tn("race.passes", passes),
      t("race.first_token", { time: clockTime(firstOf(lane)) }),
    ];
    if (complete && lane.finish) parts.push(ending(lane.finish));
    return parts.join(" · ");
  }

  /** The first `count` tokens; those from `from` on stand out. */
  show(count, from) {
    if (count === this.shown && from === this.from) return;
    const changed = count !== this.shown;
    this.spans.forEach((span, i) => {
      const hidden = i >= count;
      if (span.hidden !== hidden) span.hidden = hidden;
      span.classList.toggle("fresh", i >= from && !hidden);
    });
    [this.shown, this.from] = [count, from];
    if (changed) this.text.scrollTop = this.text.scrollHeight;
  }
}
