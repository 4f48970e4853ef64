// The sentences: why a token stayed or fell, and what a screen reader hears. Made from this run's own numbers, never in advance
// of the animation, except about a token that was clicked on. Pure, no document.

const version = new URL(import.meta.url).search;
const { acceptedOf, committedBy, judgedOf } = await import(`./model.js${version}`);
const { capital, count, drafterName, noDrafts, num, pair, quoted, spoken, time, tokens } = await import(
  `./words.js${version}`
);

const sentence = (...parts) => parts.filter(Boolean).join(" ");
const lostOf = (round) => round.drafts.find((d) => d.status === "rejected");

/** { title, text } for the token that the stage speaks of; token null: for the state as a whole. */
export function why(view, round, step, token) {
  if (token === null) return step.phase === "draft" ? whyDraft(view, round) : whyVerify(view, round);
  if (token === "outcome") return whyOutcome(view, round);
  const draft = round.drafts[token];
  if (draft.status === "discarded") return whyDiscarded(round, draft);
  return view.greedy ? whyGreedy(round, draft) : whySampled(view, round, draft);
}

function whyDraft(view, round) {
  const n = round.drafts.length;
  if (!n) return { title: "Nothing is drafted", text: noDrafts(view) };
  if (view.drafter === "lookup") {
    const text = sentence(
      "The last tokens stood in the text before, and what followed them there is copied as a draft.",
      "Nothing is decided yet.",
    );
    return { title: "A guess that costs nothing", text };
  }
  const last = round.drafts[n - 1];
  const text = sentence(
    `${capital(drafterName(view))} wrote ${tokens(n)} and noted for each the chance q it gave it,`,
    `${n > 1 ? "up to " : ""}${quoted(last.text)} with q = ${num(last.q)}. Nothing is decided yet.`,
  );
  return { title: "A cheap guess ahead", text };
}

function whyVerify(view, round) {
  const n = round.drafts.length;
  const [cost, plain] = [time(round.seconds.verify), view.plain_step_seconds];
  if (!n) return { title: "One pass, one token", text: `${noDrafts(view)} This pass took ${cost}.` };
  const text = sentence(
    `The target reads ${n === 1 ? "the draft" : `all ${count(n)} drafts`} in one pass and gives its own chance p at every place,`,
    `and one place further. It took ${cost}${plain ? `; a pass for a single token takes ${time(plain)} here` : ""}.`,
  );
  return { title: n === 1 ? "One pass checks it" : "One pass checks them all", text };
}

function whySampled(view, round, draft) {
  const name = quoted(draft.text);
  const drafter = drafterName(view);
  if (draft.accept_probability >= 1) {
    const [p, q] = pair(draft.p, draft.q);
    const text = sentence(
      `The target likes it ${draft.p > draft.q ? "even better than" : "as well as"} ${drafter} did (p = ${p}, q = ${q}).`,
      `Then p / q is at least 1 and it is kept whatever u is; u was ${num(draft.u)}.`,
    );
    return { title: `${name} stays`, text };
  }
  const [p, q] = pair(draft.p, draft.q);
  const [chance, u] = pair(draft.accept_probability, draft.u);
  const kept = draft.status === "accepted";
  const text = sentence(
    draft.q >= 1
      ? `${capital(drafter)} knows no doubt (q = 1), the target gives it ${p}, so it stays with chance ${chance}.`
      : `${capital(drafter)} was surer of it (${q}) than the target (${p}), so it stays with chance ${p} / ${q} = ${chance}.`,
    kept ? `This time u = ${u} is below that: it stays.` : `This time u = ${u}, so it goes.`,
    kept ? "" : "Its place is filled from what the target wanted more.",
  );
  if (!kept) return { title: `${name} falls, ${quoted(round.outcome.text)} takes its place`, text };
  return { title: draft.accept_probability < 0.5 ? `${name} stays, by luck of the draw` : `${name} stays`, text };
}

function whyGreedy(round, draft) {
  const name = quoted(draft.text);
  const question = "Greedy decoding asks one thing: is it the target’s first choice?";
  if (draft.status === "accepted") {
    return {
      title: `${name} stays`,
      text: `${question} It is (p = ${num(draft.p)}), so it is kept. No chance is involved.`,
    };
  }
  const choice = quoted(draft.choice ?? round.outcome.text);
  const text = `${question} That is ${choice} (p = ${num(round.outcome.p)}), not ${name} (p = ${num(draft.p)}). So that is taken.`;
  return { title: `${name} falls, ${choice} takes its place`, text };
}

function whyDiscarded(round, draft) {
  const lost = lostOf(round);
  const title = `${quoted(draft.text)} was never judged`;
  if (!lost) {
    const end = quoted(round.drafts[judgedOf(round) - 1]?.text ?? "");
    return { title, text: `The text had ended before it, with ${end}. Drafts behind the end are thrown away.` };
  }
  const text = sentence(
    `It was written to follow ${quoted(lost.text)}, which fell.`,
    `The target scored it in the same pass (p = ${num(draft.p)}), but behind the wrong token: that says nothing any more.`,
  );
  return { title, text };
}

function whyOutcome(view, round) {
  const o = round.outcome;
  const n = round.drafts.length;
  if (o.kind === "none") {
    const kept = `${capital(count(acceptedOf(round)))} of ${count(n)} drafts ${acceptedOf(round) === 1 ? "was" : "were"} kept.`;
    return { title: "The text ends here", text: `The run ended on an accepted draft, so the target adds nothing. ${kept}` };
  }
  if (o.kind === "replacement") return whyReplacement(view, round);
  const name = quoted(o.text);
  if (!n) return { title: `${name} is the target’s own token`, text: `${noDrafts(view)} p = ${num(o.p)}.` };
  const text = sentence(
    `${n === 1 ? "The draft" : `All ${count(n)} drafts`} stayed. The same pass already scored the place behind ${n === 1 ? "it" : "them"},`,
    `so the target adds one token more without another pass (p = ${num(o.p)}).`,
  );
  return { title: `${name} comes free`, text };
}

function whyReplacement(view, round) {
  const o = round.outcome;
  const title = `${quoted(o.text)} takes the place of ${quoted(lostOf(round).text)}`;
  if (view.greedy) {
    const text = `It is the target’s first choice there (p = ${num(o.p)}), known from the same pass: the replacement costs no extra time.`;
    return { title, text };
  }
  const left = o.rows.find((row) => row[0] === o.id)?.[4];
  const known = left != null && o.residual_mass;
  const chance = known
    ? `: chance ${num(left)} / ${num(o.residual_mass)} = ${num(Math.min(1, left / o.residual_mass))}`
    : "";
  const text = sentence(
    `It is drawn from what is left over where p passes q${chance}.`,
    "That tops up exactly what the drafts give too little of: every text stays as likely as from the target alone.",
  );
  return { title, text };
}

// --- what a screen reader hears -----------------------------------------------------------------------------------

/** One sentence or two for a step, for aria-live. */
export function announce(view, round, step) {
  const n = round.drafts.length;
  const start = `Round ${step.round + 1}.`;
  const each = (letter) => round.drafts.map((d) => `${spoken(d.text)}, ${letter} ${num(d[letter])}`).join("; ");
  if (step.phase === "draft")
    return `${start} ${n ? `${capital(drafterName(view))} wrote ${tokens(n)}: ${each("q")}.` : noDrafts(view)}`;
  if (step.phase === "verify") {
    return n ? `One pass of the target scored all places: ${each("p")}.` : `${start} One pass of the target, for one token.`;
  }
  if (step.phase === "judge") {
    const draft = round.drafts[step.token];
    return `Draft ${step.token + 1} of ${n}, ${spoken(draft.text)}: ${verdict(view, draft)}.`;
  }
  return sentence(
    n ? `${capital(count(acceptedOf(round)))} of ${count(n)} drafts kept.` : "",
    outcomeSpoken(round),
    `Round ${step.round + 1} adds: ${committedBy(round, step.round)
      .map((t) => spoken(t.text))
      .join(" ")}`,
  );
}

function outcomeSpoken(round) {
  const o = round.outcome;
  if (o.kind === "none") return "The text ends here.";
  if (o.kind === "replacement") return `${spoken(o.text)} replaces ${spoken(lostOf(round).text)}.`;
  return round.drafts.length ? `${spoken(o.text)} is a bonus token.` : "";
}

function verdict(view, draft) {
  const kept = draft.status === "accepted";
  if (view.greedy) {
    return kept
      ? "accepted, it is the target’s first choice"
      : `rejected, the target’s first choice is ${spoken(draft.choice ?? "")}`;
  }
  const [chance, u] = pair(draft.accept_probability, draft.u ?? 0);
  return kept ? `accepted, u ${u} is below ${chance}` : `rejected, u ${u} is not below ${chance}`;
}

/** The name of a card, with what it shows in this state and no more. */
export function cardLabel(view, round, i, look) {
  const d = round.drafts[i];
  const known = [`Draft ${i + 1} of ${round.drafts.length}: ${spoken(d.text)}`, `draft q ${num(d.q)}`];
  if (look !== "drafted") known.push(`target p ${num(d.p)}`);
  if (look === "accepted" || look === "rejected") known.push(verdict(view, d));
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
