// The text so far: the prompt in grey, then every committed token in the colour of its origin. Tokens are placed by their order,
// never by searching for their text, and bytes of a character that is spread over tokens are put together.

const version = new URL(import.meta.url).search;
const { h, say, mark } = await import(`./dom.js${version}`);
const { TextJoiner, committedBy } = await import(`./model.js${version}`);
const { t } = await import(`./words.js${version}`);

const TURNS = /[\u200e\u200f\u202a-\u202e\u2066-\u2069]/; // characters that could turn the rest of the text around

export class TextBox {
  /** @param pick (round, token) => void when a committed token is clicked */
  constructor(pick) {
    this.prompt = h("span", { class: "prompt" });
    this.gap = h("br", {});
    this.output = h("span", { class: "output" });
    this.open = h("span", { class: "openbytes" });
    this.caret = h("span", { class: "caret", "aria-hidden": "true" });
    this.element = h("div", { class: "text", role: "region", "aria-label": t("text"), tabindex: "0" });
    this.element.append(this.prompt, this.gap, this.output, this.open, this.caret);
    this.output.addEventListener("click", (event) => {
      const token = this.tokens[this.spans.indexOf(event.target.closest?.("span.t"))];
      if (token) pick(token.round, token.token);
    });
    this.reset();
  }

  reset() {
    this.joiner = new TextJoiner();
    this.tokens = [];
    this.spans = [];
    this.waiting = []; // after each token: bytes of a character that is not complete
    this.ends = [0]; // how many tokens are committed after each round
    this.output.replaceChildren();
  }

  /** Take in new rounds; what is shown does not change. */
  update(view, rounds) {
    say(this.prompt, view.prompt);
    mark(this.gap, "hidden", view.raw || !view.prompt);
    for (let number = this.ends.length - 1; number < rounds.length; number++) {
      for (const token of committedBy(rounds[number], number)) {
        const { text, open } = this.joiner.add(token);
        const span = h("span", { class: `t ${token.origin}`, hidden: true, title: titleOf(token) }, text);
        mark(span, "data-newline", /[\n]/.test(text));
        mark(span, "data-turns", TURNS.test(text));
        this.tokens.push(token);
        this.spans.push(span);
        this.waiting.push(open);
        this.output.append(span);
      }
      this.ends.push(this.tokens.length);
    }
    this.spans.forEach((span, i) => mark(span, "data-end", view.finish_reason === "eos" && i === this.spans.length - 1));
  }

  /**
   * Show the tokens of the first `committed` rounds. fresh: the round just committed stands out. Afterwards `ahead` is how far
   * (px) the text still has to scroll.
   */
  show(committed, { fresh, smooth }) {
    const end = this.ends[Math.min(committed, this.ends.length - 1)];
    const from = fresh ? this.ends[committed - 1] : end;
    this.spans.forEach((span, i) => {
      span.hidden = i >= end;
      span.classList.toggle("fresh", i >= from && i < end);
    });
    const open = end ? this.waiting[end - 1] : "";
    say(this.open, open ? `⟨${open}⟩` : "");
    mark(this.open, "hidden", !open);
    this.ahead = smooth ? Math.max(0, this.element.scrollHeight - this.element.clientHeight - this.element.scrollTop) : 0;
    this.element.scrollTo({ top: this.element.scrollHeight, behavior: smooth ? "smooth" : "instant" });
  }

  /** The spans of one round, in the order of `committedBy`. */
  spansOf(number) {
    return this.spans.slice(this.ends[number], this.ends[number + 1]);
  }

  /** The whole text that is shown, exact. */
  get shown() {
    return this.spans
      .filter((s) => !s.hidden)
      .map((s) => s.textContent)
      .join("");
  }
}

const titleOf = (token) =>
  t("origin.round", { origin: t(`origin.${token.origin}`), round: token.round + 1 });
