// Words and numbers of the stage: every sentence is made here, from this run's own numbers. Pure, no document.
// Tokens are data: what leaves this module is plain text and reaches the page through textContent only.

const version = new URL(import.meta.url).search; // the same ?v=... for every module, so that an update never mixes old and new files
const { acceptedOf, committedBy, judgedOf } = await import(`./model.js${version}`);

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

/** A token as a screen reader should say it. */
export function spoken(text) {
  const word = text.trim();
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
export const drafterName = (view) => (DRAFTERS[view.drafter] ?? ["the drafter", "The drafter writes"])[0];
const drafterWrites = (view) => (DRAFTERS[view.drafter] ?? ["the drafter", "The drafter writes"])[1];
const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

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
  eos: "ended with the end-of-text token",
  length: "ended at the length limit",
  context: "ended at the end of the context",
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
    return `${drafterWrites(view)} ${tokens(n)}${view.drafter === "lookup" ? " from the text so far" : n > 1 ? ", one after another" : ""} · ${time(all)}`;
  }
  const cost = time(round.seconds.verify);
  if (!n) return `one pass of the target gives one token · ${cost}`;
  return `one pass of the target scores ${n === 1 ? "both" : `all ${count(n + 1)}`} positions at once · ${cost}`;
}

/** The rule under the gate of a judged draft, with its numbers. */
export function rule(draft) {
  if (draft.u === null) return "";
  const ratio = ratioOf(draft);
  const [chance, u] = pair(draft.accept_probability, draft.u);
  const kept = draft.status === "accepted";
  if (draft.accept_probability >= 1) return `${ratio} = 1: always kept`;
  return `${ratio} = ${chance} ${kept ? ">" : "≤"} ${u}`;
}

const ratioOf = (draft) => `min(1, ${pair(draft.p, draft.q).join(" / ")})`;

// --- the "why" sentence -------------------------------------------------------------------------------------------

/**
 * Heading and sentence for the token that the stage speaks of (null: for the state as a whole).
 * Tells nothing that the step has not shown yet, except about a token that was clicked on.
 */
export function why(view, round, step, token) {
  if (token === null) return whyState(view, round, step);
  if (token === "outcome") return whyOutcome(view, round);
  const draft = round.drafts[token];
  if (draft.status === "discarded") return whyDiscarded(round, draft);
  return view.greedy ? whyGreedy(round, draft) : whySampled(view, round, draft);
}

function whyState(view, round, step) {
  const n = round.drafts.length;
  if (step.phase === "draft") {
    if (!n) return { title: "Nothing is drafted", text: noDrafts(view) };
    if (view.drafter === "lookup") {
      return { title: "A guess that costs nothing", text: "The last tokens stood in the text before. What followed them there is copied as a draft. Nothing is decided yet." };
    }
    const last = round.drafts[n - 1];
    return {
      title: "A cheap guess ahead",
      text: `${capital(drafterName(view))} wrote ${tokens(n)} and noted for each the chance q it gave it, up to ${quoted(last.text)} with q = ${num(last.q)}. Nothing is decided yet.`,
    };
  }
  if (!n) return { title: "One pass, one token", text: `${noDrafts(view)} This pass took ${time(round.seconds.verify)}.` };
  const plain = view.plain_step_seconds;
  const cost = plain ? `It took ${time(round.seconds.verify)}; a pass for a single token takes ${time(plain)} here.` : `It took ${time(round.seconds.verify)}.`;
  return {
    title: "One pass checks them all",
    text: `The target reads ${n === 1 ? "the draft" : `all ${count(n)} drafts`} in one pass and gives its own chance p at every place, and one place further. ${cost}`,
  };
}

function whySampled(view, round, draft) {
  const name = quoted(draft.text);
  if (draft.status === "accepted") {
    if (draft.accept_probability >= 1) {
      const [p, q] = pair(draft.p, draft.q);
      return {
        title: `${name} stays`,
        text: `The target likes it ${draft.p > draft.q ? "even better than" : "as well as"} ${drafterName(view)} did (p = ${p}, q = ${q}). Then p / q is at least 1 and it is kept whatever u is; u was ${num(draft.u)}.`,
      };
    }
    const [chance, u] = pair(draft.accept_probability, draft.u);
    return {
      title: `${name} stays, by luck of the draw`,
      text: `${capital(drafterName(view))} was surer of it (${num(draft.q)}) than the target (${num(draft.p)}), so it stays with chance ${num(draft.p)} / ${num(draft.q)} = ${chance}. This time u = ${u} is below that: it stays.`,
    };
  }
  const [chance, u] = pair(draft.accept_probability, draft.u);
  return {
    title: `${name} falls, ${quoted(round.outcome.text)} takes its place`,
    text: `${capital(drafterName(view))} was surer of it (${num(draft.q)}) than the target (${num(draft.p)}), so it stays with chance ${num(draft.p)} / ${num(draft.q)} = ${chance}. This time u = ${u}, so it goes. Its place is filled from what the target wanted more.`,
  };
}

function whyGreedy(round, draft) {
  const name = quoted(draft.text);
  if (draft.status === "accepted") {
    return { title: `${name} stays`, text: `Greedy decoding asks one thing: is it the target’s first choice? It is (p = ${num(draft.p)}), so it is kept. No chance is involved.` };
  }
  const choice = draft.choice ?? round.outcome.text;
  return {
    title: `${name} falls, ${quoted(choice)} takes its place`,
    text: `Greedy decoding asks one thing: is it the target’s first choice? That is ${quoted(choice)} (p = ${num(round.outcome.p)}), not ${name} (p = ${num(draft.p)}). So the target’s choice is taken.`,
  };
}

function whyDiscarded(round, draft) {
  const lost = round.drafts.find((d) => d.status === "rejected");
  const name = quoted(draft.text);
  if (!lost) {
    const end = round.drafts[judgedOf(round) - 1];
    return { title: `${name} was never judged`, text: `The text had ended before it, with ${quoted(end?.text ?? "")}. Drafts behind the end are thrown away.` };
  }
  return {
    title: `${name} was never judged`,
    text: `It was written to follow ${quoted(lost.text)}, which fell. The target scored it in the same pass (p = ${num(draft.p)}), but behind the wrong word, so that says nothing any more.`,
  };
}

function whyOutcome(view, round) {
  const o = round.outcome;
  const name = quoted(o.text);
  if (o.kind === "none") {
    return { title: "The text ends here", text: `The run ended on an accepted draft, so the target adds nothing. ${capital(count(acceptedOf(round)))} of ${count(round.drafts.length)} drafts were kept.` };
  }
  if (o.kind === "replacement") {
    const lost = round.drafts.find((d) => d.status === "rejected");
    if (view.greedy) {
      return { title: `${name} takes the place of ${quoted(lost.text)}`, text: `It is the target’s first choice there (p = ${num(o.p)}), known from the same pass: the replacement costs no extra time.` };
    }
    const left = o.rows?.find((row) => row[0] === o.id)?.[4];
    const chance = left != null && o.residual_mass ? `: chance ${num(left)} / ${num(o.residual_mass)} = ${num(Math.min(1, left / o.residual_mass))}` : "";
    return {
      title: `${name} takes the place of ${quoted(lost.text)}`,
      text: `It is drawn from what is left over where the target’s p passes the draft’s q${chance}. That tops up exactly what the drafts give too little of, so every text stays as likely as from the target alone.`,
    };
  }
  if (!round.drafts.length) return { title: `${name} is the target’s own token`, text: `${noDrafts(view)} p = ${num(o.p)}.` };
  return {
    title: `${name} comes free`,
    text: `${round.drafts.length === 1 ? "The draft" : `All ${count(round.drafts.length)} drafts`} stayed. The same pass already scored the place behind ${round.drafts.length === 1 ? "it" : "them"}, so the target adds one token more without another pass (p = ${num(o.p)}).`,
  };
}

// --- what a screen reader hears -----------------------------------------------------------------------------------

/** One sentence or two for a step, for aria-live. */
export function announce(view, round, step) {
  const n = round.drafts.length;
  const start = `Round ${step.round + 1}.`;
  if (step.phase === "draft") {
    if (!n) return `${start} ${noDrafts(view)}`;
    return `${start} ${capital(drafterName(view))} wrote ${tokens(n)}: ${round.drafts.map((d) => `${spoken(d.text)}, q ${num(d.q)}`).join("; ")}.`;
  }
  if (step.phase === "verify") {
    if (!n) return `${start} One pass of the target, for one token.`;
    return `One pass of the target scored all places: ${round.drafts.map((d) => `${spoken(d.text)}, p ${num(d.p)}`).join("; ")}.`;
  }
  if (step.phase === "judge") return `Draft ${step.token + 1} of ${n}, ${judged(view, round.drafts[step.token])}.`;
  const added = committedBy(round, step.round);
  const what = {
    replacement: () => `${spoken(round.outcome.text)} replaces ${spoken(round.drafts.find((d) => d.status === "rejected").text)}. `,
    bonus: () => (n ? `${spoken(round.outcome.text)} is a bonus token. ` : ""),
    none: () => "The text ends here. ",
  }[round.outcome.kind]();
  return `${n ? `${capital(count(acceptedOf(round)))} of ${count(n)} drafts kept. ` : ""}${what}Round ${step.round + 1} adds: ${added.map((t) => spoken(t.text)).join(" ")}`;
}

function judged(view, draft) {
  const verdict = draft.status === "accepted" ? "accepted" : "rejected";
  if (view.greedy) return `${spoken(draft.text)}: ${verdict}, ${draft.status === "accepted" ? "it is the target’s first choice" : `the target’s first choice is ${spoken(draft.choice ?? "")}`}`;
  const [chance, u] = pair(draft.accept_probability, draft.u ?? 0);
  return `${spoken(draft.text)}: ${verdict}, u ${u} is ${draft.status === "accepted" ? "below" : "not below"} ${chance}`;
}

/** The name of a card, with what it shows in this state and no more. */
export function cardLabel(view, round, i, look) {
  const d = round.drafts[i];
  const known = [`Draft ${i + 1} of ${round.drafts.length}: ${spoken(d.text)}`, `draft q ${num(d.q)}`];
  if (look !== "drafted") known.push(`target p ${num(d.p)}`);
  if (look === "accepted" || look === "rejected") known.push(judged(view, d).split(": ")[1]);
  if (look === "discarded") known.push("discarded, never judged");
  return known.join(", ");
}

export function outcomeLabel(view, round, shown) {
  if (!shown) return "The target’s own token of this round: not shown yet";
  const o = round.outcome;
  if (o.kind === "none") return "The target adds nothing: the text ended";
  const kind = o.kind === "replacement" ? "replacement" : round.drafts.length ? "bonus token" : "the target’s own token";
  return `${spoken(o.text)}, ${kind}, target p ${num(o.p)}`;
}
