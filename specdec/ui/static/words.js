// Numbers, tokens and short words of the stage. Pure, no document. (The sentences are in reasons.js.)
// Tokens are data: what leaves this module is plain text and reaches the page through textContent only.
// The texts themselves are those of assets/texts, which the app serves in the language of the tab.

const TEXTS = new Map();

/** Take in texts by name: { "stage.why": "Why", ... }. */
export function use(texts) {
  for (const [name, text] of Object.entries(texts)) TEXTS.set(name, text);
}

/** The texts of the language that `search` asks for ("?v=...&lang=de"), from the app. */
export async function fetchTexts(address, search) {
  const answer = await fetch(new URL(`${new URLSearchParams(search).get("lang") ?? "en"}.json${search}`, address));
  if (!answer.ok) throw new Error(`The texts of the stage are missing: ${answer.status}.`);
  use(await answer.json());
}

/** The text `stage.name` with `values` put in for {their names}. */
export function t(name, values = {}) {
  const text = TEXTS.get(`stage.${name}`) ?? name;
  return text.replace(/\{(\w+)\}/g, (place, key) => (Object.hasOwn(values, key) ? String(values[key]) : place));
}

/** The same for a text that depends on a number: name.one or name.many. */
export const tn = (name, n, values = {}) => t(`${name}.${n === 1 ? "one" : "many"}`, { n, ...values });

export const count = (n) => t("numbers").split(",")[n] ?? String(n);
export const tokens = (n) => tn("tokens", n, { n: count(n) });
/** Digits as the language writes them: .62 is 0,62 where there is a decimal comma. */
const digitsOf = (text) => (t("decimal") === "." ? text : text.replace(/(^|[<>])\./, "$10.").replace(".", t("decimal")));

// --- tokens -------------------------------------------------------------------------------------------------------

const INVISIBLE = { " ": "␣", "\n": "↵", "\t": "⇥", "\r": "⏎", "\u00a0": "⍽" };
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/gu;

const BYTES = /^⟨[0-9A-F]{2}( [0-9A-F]{2})*⟩$/; // how the trace writes a token that is only a part of a character

/** A token with its white space and control characters made visible. */
export function visible(text) {
  if (text === "") return `⟨${t("empty")}⟩`;
  if (BYTES.test(text)) return text;
  const marked = text.replace(/[ \n\t\r\u00a0]/g, (c) => INVISIBLE[c]);
  return marked.replace(HIDDEN, (c) => `⟨U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}

/** The same, shortened in the middle, for sentences and narrow places. */
export function short(text, most = 22) {
  const letters = [...visible(text)];
  return letters.length <= most ? letters.join("") : `${letters.slice(0, most - 5).join("")}…${letters.slice(-4).join("")}`;
}

export const quoted = (text, most) => t("quote", { text: short(text, most) });

// Punctuation alone, which screen readers leave out. A Map: a token may be called "constructor".
const MARKS = new Map(
  Object.entries({
    ",": "comma",
    ".": "stop",
    ":": "colon",
    ";": "semicolon",
    "!": "exclamation",
    "?": "question",
    "-": "hyphen",
    "(": "open",
    ")": "close",
    '"': "quotation",
    "'": "apostrophe",
    "’": "apostrophe",
    "*": "asterisk",
  }),
);

/** A token as a screen reader should say it. */
export function spoken(text) {
  const word = text.trim();
  if (MARKS.has(word)) return t(`spoken.${MARKS.get(word)}`);
  if (word) return short(word, 40);
  if (text === "") return t("spoken.empty");
  return t(text.includes("\n") ? "spoken.break" : text.includes("\t") ? "spoken.tab" : "spoken.space");
}

// --- numbers ------------------------------------------------------------------------------------------------------

const trimZero = (text) => text.replace(/^0\./, ".");

/** A probability as the stage prints it: .62, .016, .0003, 0, 1; never rounded up to a 1 or down to a 0 that it is not. */
export const num = (value, digits = null) => digitsOf(plainNum(value, digits));

function plainNum(value, digits) {
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
  if (ms >= 1000) return digitsOf(`${(ms / 1000).toFixed(1)} s`);
  return digitsOf(`${ms >= 10 ? ms.toFixed(0) : ms >= 0.1 ? ms.toFixed(1) : ms > 0 ? "<0.1" : "0"} ms`);
}

/** A number with so many decimals: "1.3". */
export const decimals = (value, places) => digitsOf(value.toFixed(places));

// --- who and what -------------------------------------------------------------------------------------------------

const DRAFTERS = ["draft", "head", "head-lookup", "early-exit", "lookup"];
const drafterOf = (view) => (DRAFTERS.includes(view.drafter) ? view.drafter : "other");
export const drafterName = (view) => t(`who.${drafterOf(view)}`);
/** Who drafts in this round: one of two where they take turns. */
export function writerOf(view, round) {
  if (view.drafter !== "head-lookup") return drafterOf(view);
  return round.copied ? "lookup" : "head";
}
/** "The draft model wrote four tokens" */
export const wrote = (view, round) => t(`wrote.${writerOf(view, round)}`, { tokens: tokens(round.drafts.length) });
/** "with the draft model, γ = 4" */
export const withDrafter = (view) => t(`with.${drafterOf(view)}`, { gamma: view.draft_length });
export const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

export const SIGN = { accepted: "✓", rejected: "✕", discarded: "–", replacement: "↻", bonus: "+", own: "●", none: "■" };
const signed = (name, kinds) => (kind) => (kinds.includes(kind) ? `${SIGN[kind]} ${t(`${name}.${kind}`)}` : "");
export const verdictWord = signed("verdict", ["accepted", "rejected", "discarded"]);
export const addedWord = signed("added", ["replacement", "bonus", "own", "none"]);

const ENDINGS = ["eos", "length", "context", "stopped"];
export const ending = (reason) => (ENDINGS.includes(reason) ? t(`end.${reason}`) : reason);

/** Why a round has no drafts. */
export const noDrafts = (view) =>
  t(`nodrafts.${view.method === "plain" ? "plain" : view.drafter === "lookup" ? "lookup" : "other"}`);

/** The line above the cards: what happens in this state. */
export function caption(view, round, step) {
  const n = round.drafts.length;
  if (step.phase === "draft") {
    if (!n) return t(view.drafter === "lookup" ? "caption.nothing.lookup" : "caption.nothing");
    const all = round.seconds.draft.reduce((sum, s) => sum + s, 0);
    const writer = writerOf(view, round);
    const writes = t(`writes.${writer}`, { tokens: tokens(n) });
    return `${n > 1 && writer !== "lookup" ? t("writes.in_turn", { writes }) : writes} · ${time(all)}`;
  }
  const scored = !n ? t("caption.alone") : n === 1 ? t("caption.both") : t("caption.all", { n: count(n + 1) });
  return `${scored} · ${time(round.seconds.verify)}`;
}

/** The rule under the gate of a judged draft, with its numbers; brief: for a narrow card. */
export function rule(draft, brief = false) {
  if (draft.u === null) return "";
  const ratio = pair(draft.p, draft.q).join(" / ");
  if (draft.accept_probability >= 1) return brief ? `${ratio} ≥ 1: ${t("rule.kept")}` : `min(1, ${ratio}) = 1: ${t("rule.always")}`;
  const [chance, u] = pair(draft.accept_probability, draft.u);
  const result = `${chance} ${draft.status === "accepted" ? ">" : "≤"} ${u}`;
  const whole = `min(1, ${ratio}) = ${result}`;
  return brief || whole.length > 31 ? `${ratio} = ${result}` : whole;
}
