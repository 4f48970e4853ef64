// Numbers, tokens and short words of the stage. Pure, no document. (The sentences are in reasons.js.)
// Tokens are data: what leaves this module is plain text and reaches the page through textContent only.

const NAMES = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"];
export const count = (n) => NAMES[n] ?? String(n);
export const tokens = (n) => `${count(n)} ${n === 1 ? "token" : "tokens"}`;

// --- tokens -------------------------------------------------------------------------------------------------------

const INVISIBLE = { " ": "␣", "\n": "↵", "\t": "⇥", "\r": "⏎", "\u00a0": "⍽" };
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/gu;

const BYTES = /^⟨[0-9A-F]{2}( [0-9A-F]{2})*⟩$/; // how the trace writes a token that is only a part of a character

/** A token with its white space and control characters made visible. */
export function visible(text) {
  if (text === "") return "⟨empty⟩";
  if (BYTES.test(text)) return text;
  const marked = text.replace(/[ \n\t\r\u00a0]/g, (c) => INVISIBLE[c]);
  return marked.replace(HIDDEN, (c) => `⟨U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}

/** The same, shortened in the middle, for sentences and narrow places. */
export function short(text, most = 22) {
  const letters = [...visible(text)];
  return letters.length <= most ? letters.join("") : `${letters.slice(0, most - 5).join("")}…${letters.slice(-4).join("")}`;
}

export const quoted = (text, most) => `“${short(text, most)}”`;

// Punctuation alone, which screen readers leave out. A Map: a token may be called "constructor".
const MARKS = new Map(
  Object.entries({
    ",": "comma",
    ".": "full stop",
    ":": "colon",
    ";": "semicolon",
    "!": "exclamation mark",
    "?": "question mark",
    "-": "hyphen",
    "(": "opening bracket",
    ")": "closing bracket",
    '"': "quotation mark",
    "'": "apostrophe",
    "’": "apostrophe",
    "*": "asterisk",
  }),
);

/** A token as a screen reader should say it. */
export function spoken(text) {
  const word = text.trim();
  if (MARKS.has(word)) return MARKS.get(word);
  if (word) return short(word, 40);
  if (text === "") return "an empty token";
  return text.includes("\n") ? "a line break" : text.includes("\t") ? "a tab" : "a space";
}

// --- numbers ------------------------------------------------------------------------------------------------------

const trimZero = (text) => text.replace(/^0\./, ".");

/** A probability as the stage prints it: .62, .016, .0003, 0, 1; never rounded up to a 1 or down to a 0 that it is not. */
export function num(value, digits = null) {
  if (value === null || value === undefined) return "–";
  if (value <= 0) return "0";
  if (value >= 1) return "1";
  if (digits !== null) return trimZero(value.toFixed(digits));
  if (value > 0.99999) return ">.9999";
  if (value > 0.995) return trimZero(cut(value, value > 0.9995 ? 5 : 3));
  if (value >= 0.0995) return trimZero(value.toFixed(2));
  if (value < 0.0000005) return "<.000001";
  const places = value < 0.00005 ? 6 : value < 0.00095 ? 4 : 3;
  return trimZero(value.toFixed(places)).replace(/^(\.\d\d+?)0+$/, "$1");
}

const cut = (value, places) => (Math.floor(value * 10 ** places) / 10 ** places).toFixed(places);

/** Two numbers that are compared: with as many digits as it takes to tell them apart. */
export function pair(a, b) {
  if (a === b) return [num(a), num(b)];
  let texts = [num(a), num(b)];
  for (let digits = 3; texts[0] === texts[1] && digits <= 7; digits++) texts = [num(a, digits), num(b, digits)];
  return texts;
}

export function time(seconds) {
  const ms = seconds * 1000;
  if (ms >= 10_000) return `${(ms / 1000).toFixed(0)} s`;
  if (ms >= 1000) return `${(ms / 1000).toFixed(1)} s`;
  return `${ms >= 10 ? ms.toFixed(0) : ms >= 0.1 ? ms.toFixed(1) : ms > 0 ? "<0.1" : "0"} ms`;
}

// --- who and what -------------------------------------------------------------------------------------------------

const DRAFTERS = {
  draft: ["the draft model", "The draft model writes"],
  head: ["the attached head", "The attached head writes"],
  "early-exit": ["the target’s first layers", "The target’s first layers write"],
  lookup: ["prompt look-up", "Prompt look-up copies"],
};
const drafterOf = (view) =>
  Object.hasOwn(DRAFTERS, view.drafter) ? DRAFTERS[view.drafter] : ["the drafter", "The drafter writes"];
export const drafterName = (view) => drafterOf(view)[0];
export const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

export const SIGN = { accepted: "✓", rejected: "✕", discarded: "–", replacement: "↻", bonus: "+", own: "●", none: "■" };
export const VERDICT = {
  drafted: "",
  scored: "",
  accepted: "✓ accepted",
  rejected: "✕ rejected",
  discarded: "– discarded",
};
export const ADDED = { replacement: "↻ replacement", bonus: "+ bonus", own: "● target’s own", none: "■ end" };

export const ENDINGS = {
  eos: "ended by itself",
  length: "length limit reached",
  context: "context is full",
  stopped: "stopped",
};

/** Why a round has no drafts. */
export function noDrafts(view) {
  if (view.method === "plain") return "Plain decoding: nobody drafts. Every token costs one pass of the target.";
  if (view.drafter === "lookup") return "Prompt look-up found nothing to copy here. The target writes one token by itself.";
  return "No draft in this round: the target writes one token by itself.";
}

/** The line above the cards: what happens in this state. */
export function caption(view, round, step) {
  const n = round.drafts.length;
  if (step.phase === "draft") {
    if (!n) return view.drafter === "lookup" ? "Prompt look-up found nothing to copy" : "nothing is drafted in this round";
    const all = round.seconds.draft.reduce((sum, s) => sum + s, 0);
    const how = view.drafter === "lookup" ? " from the text so far" : n > 1 ? ", one after another" : "";
    return `${drafterOf(view)[1]} ${tokens(n)}${how} · ${time(all)}`;
  }
  const cost = time(round.seconds.verify);
  if (!n) return `one pass of the target gives one token · ${cost}`;
  return `one pass of the target scores ${n === 1 ? "both" : `all ${count(n + 1)}`} positions at once · ${cost}`;
}

/** The rule under the gate of a judged draft, with its numbers; brief: for a narrow card. */
export function rule(draft, brief = false) {
  if (draft.u === null) return "";
  const ratio = pair(draft.p, draft.q).join(" / ");
  if (draft.accept_probability >= 1) return brief ? `${ratio} ≥ 1: kept` : `min(1, ${ratio}) = 1: always kept`;
  const [chance, u] = pair(draft.accept_probability, draft.u);
  const result = `${chance} ${draft.status === "accepted" ? ">" : "≤"} ${u}`;
  const whole = `min(1, ${ratio}) = ${result}`;
  return brief || whole.length > 31 ? `${ratio} = ${result}` : whole;
}
