// The sentences: why a token stayed or fell, and what a screen reader hears. Made from this run's own numbers, never in advance
// of the animation, except about a token that was clicked on. Pure, no document.

const version = new URL(import.meta.url).search;
const { acceptedOf, committedBy, judgedOf } = await import(`./model.js${version}`);
const { capital, count, noDrafts, num, pair, quoted, spoken, t, time, tn, writerOf, wrote } = await import(`./words.js${version}`);

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
  if (!n) return { title: t("why.nothing"), text: noDrafts(view) };
  if (writerOf(view, round) === "lookup") return { title: t("why.free"), text: t("why.free.text") };
  const last = round.drafts[n - 1];
  return {
    title: t("why.guess"),
    text: tn("why.guess", n, { wrote: wrote(view, round), last: quoted(last.text), q: num(last.q) }),
  };
}

function whyVerify(view, round) {
  const n = round.drafts.length;
  const cost = time(round.seconds.verify);
  if (!n) return { title: t("why.pass"), text: t("why.pass.text", { why: noDrafts(view), cost }) };
  const plain = view.plain_step_seconds ? t("why.check.plain", { plain: time(view.plain_step_seconds) }) : "";
  const name = n === 1 ? "why.check" : "why.checks";
  return { title: t(name), text: t(`${name}.text`, { n: count(n), cost, plain }) };
}

function whySampled(view, round, draft) {
  const name = quoted(draft.text);
  const [p, q] = pair(draft.p, draft.q);
  if (draft.accept_probability >= 1) {
    const text = t(draft.p > draft.q ? "why.better" : "why.as_well", { p, q, u: num(draft.u) });
    return { title: t("why.stays", { name }), text };
  }
  const [chance, u] = pair(draft.accept_probability, draft.u);
  const kept = draft.status === "accepted";
  const why = t(draft.q >= 1 ? "why.no_doubt" : "why.surer", { p, q, chance });
  const text = t(kept ? "why.below" : "why.not_below", { why, u });
  if (!kept) return { title: t("why.falls", { name, new: quoted(round.outcome.text) }), text };
  return { title: t(draft.accept_probability < 0.5 ? "why.luck" : "why.stays", { name }), text };
}

function whyGreedy(round, draft) {
  const name = quoted(draft.text);
  const p = num(draft.p);
  if (draft.status === "accepted") return { title: t("why.stays", { name }), text: t("why.greedy.stays", { p }) };
  const choice = quoted(draft.choice ?? round.outcome.text);
  const text = t("why.greedy.falls", { choice, best: num(round.outcome.p), name, p });
  return { title: t("why.falls", { name, new: choice }), text };
}

function whyDiscarded(round, draft) {
  const lost = lostOf(round);
  const title = t("why.unjudged", { name: quoted(draft.text) });
  if (lost) return { title, text: t("why.unjudged.text", { lost: quoted(lost.text), p: num(draft.p) }) };
  return { title, text: t("why.unjudged.end", { end: quoted(round.drafts[judgedOf(round) - 1]?.text ?? "") }) };
}

function whyOutcome(view, round) {
  const o = round.outcome;
  const n = round.drafts.length;
  if (o.kind === "none") {
    const kept = capital(count(acceptedOf(round)));
    return { title: t("why.end"), text: t("why.end.text", { kept, n: count(n) }) };
  }
  if (o.kind === "replacement") return whyReplacement(view, round);
  const name = quoted(o.text);
  const p = num(o.p);
  if (!n) return { title: t("why.own", { name }), text: t("why.own.text", { why: noDrafts(view), p }) };
  return { title: t("why.comes_free", { name }), text: tn("why.comes_free", n, { n: count(n), p }) };
}

function whyReplacement(view, round) {
  const o = round.outcome;
  const title = t("why.replaces", { new: quoted(o.text), lost: quoted(lostOf(round).text) });
  if (view.greedy) return { title, text: t("why.replaces.greedy", { p: num(o.p) }) };
  const left = o.rows.find((row) => row[0] === o.id)?.[4];
  const mass = o.residual_mass;
  const known = left != null && mass;
  const share = known ? num(Math.min(1, left / mass)) : "";
  const chance = known ? t("why.replaces.chance", { left: num(left), mass: num(mass), share }) : "";
  return { title, text: t("why.replaces.text", { chance }) };
}

// --- what a screen reader hears -----------------------------------------------------------------------------------

/** One sentence or two for a step, for aria-live. */
export function announce(view, round, step) {
  const n = round.drafts.length;
  const start = t("say.round", { round: step.round + 1 });
  const each = (letter) =>
    round.drafts.map((d) => t("say.each", { token: spoken(d.text), letter, value: num(d[letter]) })).join("; ");
  if (step.phase === "draft") {
    return sentence(start, n ? t("say.draft", { wrote: wrote(view, round), each: each("q") }) : noDrafts(view));
  }
  if (step.phase === "verify") return n ? t("say.scored", { each: each("p") }) : sentence(start, t("say.alone"));
  if (step.phase === "judge") {
    const draft = round.drafts[step.token];
    return t("say.judge", { i: step.token + 1, n, token: spoken(draft.text), verdict: verdict(view, draft) });
  }
  const added = committedBy(round, step.round).map((token) => spoken(token.text));
  return sentence(
    n ? t("say.kept", { kept: capital(count(acceptedOf(round))), n: count(n) }) : "",
    outcomeSpoken(round),
    t("say.adds", { round: step.round + 1, tokens: added.join(" ") }),
  );
}

function outcomeSpoken(round) {
  const o = round.outcome;
  if (o.kind === "none") return t("say.end");
  if (o.kind === "replacement") return t("say.replaces", { new: spoken(o.text), lost: spoken(lostOf(round).text) });
  return round.drafts.length ? t("say.bonus", { new: spoken(o.text) }) : "";
}

function verdict(view, draft) {
  const kept = draft.status === "accepted";
  if (view.greedy) return kept ? t("say.first") : t("say.not_first", { choice: spoken(draft.choice ?? "") });
  const [chance, u] = pair(draft.accept_probability, draft.u ?? 0);
  return t(kept ? "say.below" : "say.not_below", { u, chance });
}

/** The name of a card, with what it shows in this state and no more. */
export function cardLabel(view, round, i, look) {
  const d = round.drafts[i];
  const known = [
    t("label.draft", { i: i + 1, n: round.drafts.length, token: spoken(d.text) }),
    t("label.q", { q: num(d.q) }),
  ];
  if (look !== "drafted") known.push(t("label.p", { p: num(d.p) }));
  if (look === "accepted" || look === "rejected") known.push(verdict(view, d));
  if (look === "discarded") known.push(t("label.discarded"));
  return known.join(", ");
}

export function outcomeLabel(view, round, shown) {
  if (!shown) return t("label.later");
  const o = round.outcome;
  if (o.kind === "none") return t("label.nothing");
  const kind = t(`label.${o.kind === "replacement" ? "replacement" : round.drafts.length ? "bonus" : "own"}`);
  return t("label.added", { token: spoken(o.text), kind, p: num(o.p) });
}
