// One card a drafted position, and one for the token that the target adds. With many drafts, or little room, the cards shrink to
// chips and the card of the current token is shown whole beside them.

const version = new URL(import.meta.url).search;
const { h, say, mark } = await import(`./dom.js${version}`);
const { acceptedOf, draftLook, originOf, seenAt } = await import(`./model.js${version}`);
const { cardLabel, outcomeLabel } = await import(`./reasons.js${version}`);
const { SIGN, addedWord, count, noDrafts, num, pair, quoted, rule, t, tn, verdictWord, visible } = await import(
  `./words.js${version}`
);

export class Cards {
  /** @param pick (token) => void, token: number of a draft or "outcome" */
  constructor(pick) {
    this.pick = pick;
    this.chips = h("div", { class: "chips", role: "group" });
    this.note = h("p", { class: "nodraft" });
    this.open = h("div", { class: "open", "aria-hidden": "true" });
    this.element = h("div", { class: "cards" }, this.chips, this.open);
    this.cards = [];
  }

  /** Build the cards of another round. */
  build(view, round, number) {
    this.drafts = round.drafts.length;
    this.cards = round.drafts.map((_, i) => makeCard("button", () => this.pick(i)));
    this.added = makeCard("button", () => this.pick("outcome"), true);
    this.chips.replaceChildren(...(this.drafts ? [] : [this.note]), ...this.cards.map((c) => c.element), this.added.element);
    say(this.note, noDrafts(view));
    mark(this.chips, "aria-label", t("card.drafts", { round: number + 1 }));
    const all = this.drafts + 1;
    this.chips.style.setProperty("--columns", all);
    this.chips.style.setProperty("--chipcolumns", all <= 10 ? 5 : all <= 18 ? 6 : all <= 24 ? 8 : 11);
    mark(this.chips, "data-few", all <= 10);
    this.large = makeCard("div");
    this.largeAdded = makeCard("div", null, true);
    this.open.replaceChildren(this.large.element, this.largeAdded.element);
  }

  /** Bring every card to the state that `step` shows. token: the one that the stage speaks of. */
  draw(view, round, step, token, selected) {
    round.drafts.forEach((draft, i) => {
      const look = draftLook(step, round, i);
      fillDraft(this.cards[i], view, round, draft, look);
      this.dress(this.cards[i], cardLabel(view, round, i, look), token === i, selected === i);
    });
    const shown = seenAt(step, round).committed;
    fillAdded(this.added, view, round, shown);
    this.dress(this.added, outcomeLabel(view, round, shown), token === "outcome", selected === "outcome");
    mark(this.added.element, "disabled", round.outcome.kind === "none");

    const last = step.phase === "draft" ? this.drafts - 1 : 0;
    const large = token ?? (this.drafts ? Math.max(0, last) : "outcome");
    mark(this.large.element, "hidden", large === "outcome");
    mark(this.largeAdded.element, "hidden", large !== "outcome");
    if (large === "outcome") fillAdded(this.largeAdded, view, round, shown);
    else fillDraft(this.large, view, round, round.drafts[large], draftLook(step, round, large));
  }

  /** The name is text that is only spoken; what is drawn stays silent, so that nothing is said twice. */
  dress({ element, name }, label, current, pressed) {
    say(name, label);
    mark(element, "aria-pressed", pressed ? "true" : "false");
    mark(element, "data-current", current);
  }

  /** The card that stands for a token: its chip or card in the row. */
  of(token) {
    return token === "outcome" ? this.added : this.cards[token];
  }
}

function bar(kind, name) {
  const fill = h("i", {});
  const value = h("span", { class: "n" });
  const word = h("span", { class: "word" }, `${t(kind === "q" ? "card.draft" : "card.target")} `);
  return {
    element: h(
      "span",
      { class: `pq ${kind}` },
      h("span", { class: "k" }, word, name),
      h("span", { class: "bar" }, fill),
      value,
    ),
    fill,
    value,
  };
}

function makeCard(tag, onclick = null, added = false) {
  const parts = {
    token: h("bdi", { class: "tok" }),
    sign: h("span", { class: "sign" }),
    verdict: h("span", { class: "verdict" }),
    q: bar("q", "q"),
    p: bar("p", "p"),
    gateFill: h("i", {}),
    u: h("b", {}),
    rule: h("span", { class: "rule" }),
    full: h("span", { class: "full" }),
    brief: h("span", { class: "brief" }),
    first: h("span", { class: "first" }),
    choice: h("bdi", { class: "tok" }),
    same: h("span", { class: "same" }),
    note: h("span", { class: "note" }),
    mini: h("i", {}),
  };
  parts.tick = h("span", { class: "tick" }, parts.u);
  parts.gate = h("span", { class: "gate" }, parts.gateFill, parts.tick);
  parts.rule.append(parts.full, parts.brief);
  parts.first.append(h("span", { class: "k" }, t("card.first")), parts.choice, parts.same);
  const button = tag === "button" ? { type: "button", onclick } : {};
  const drawn = [
    parts.verdict,
    h("span", { class: "head" }, parts.token, parts.sign),
    h("span", { class: "mini" }, parts.mini),
    ...(added ? [parts.p.element] : [parts.q.element, parts.p.element]),
    h("span", { class: "judge" }, ...(added ? [] : [parts.gate, parts.rule, parts.first]), parts.note),
  ];
  for (const part of drawn) part.setAttribute("aria-hidden", "true");
  parts.name = h("span", { class: "hidden" });
  parts.element = h(tag, { class: added ? "card added" : "card", ...button }, parts.name, ...drawn);
  return parts;
}

const width = (value) => `${Math.max(0, Math.min(1, value)) * 100}%`;

function fillDraft(card, view, round, draft, look) {
  const judged = look === "accepted" || look === "rejected";
  mark(card.element, "data-look", look);
  mark(card.element, "data-rule", view.greedy ? "greedy" : "sampled");
  say(card.token, visible(draft.text));
  mark(card.token, "title", visible(draft.text));
  say(card.verdict, verdictWord(look));
  say(card.sign, SIGN[look] ?? "");
  say(card.q.value, num(draft.q));
  card.q.fill.style.width = width(draft.q);
  say(card.p.value, look === "drafted" ? "" : num(draft.p));
  card.p.fill.style.width = look === "drafted" ? "0" : width(draft.p);
  card.mini.style.width = judged ? width(draft.accept_probability) : look === "drafted" ? width(draft.q) : width(draft.p);
  if (view.greedy) {
    say(card.choice, judged ? visible(draft.choice ?? "") : "");
    say(card.same, !judged ? "" : t(look === "accepted" ? "card.same" : "card.other"));
  } else {
    card.gateFill.style.width = judged ? width(draft.accept_probability) : "0";
    const u = draft.u ?? 0;
    card.tick.style.left = width(u);
    mark(card.tick, "data-side", u < 0.14 ? "left" : u > 0.86 ? "right" : null);
    say(card.u, judged ? `u = ${pair(draft.u, draft.accept_probability)[0]}` : "");
    say(card.full, judged ? rule(draft) : "");
    say(card.brief, judged ? rule(draft, true) : "");
  }
  const lost = round.drafts.find((d) => d.status === "rejected");
  const why = lost ? t("card.unjudged", { lost: quoted(lost.text, 14) }) : t("card.unjudged.end");
  say(card.note, look === "discarded" ? why : "");
}

function fillAdded(card, view, round, shown) {
  const o = round.outcome;
  const n = round.drafts.length;
  mark(card.element, "data-look", !shown ? "waiting" : o.kind === "none" ? "none" : originOf(round, "outcome"));
  say(card.token, !shown ? "?" : o.kind === "none" ? t("card.nothing") : visible(o.text));
  mark(card.token, "title", shown ? visible(o.text) : null);
  say(card.verdict, shown ? addedWord(o.kind === "none" ? "none" : originOf(round, "outcome")) : t("card.adds"));
  say(card.sign, shown ? SIGN[o.kind === "none" ? "none" : originOf(round, "outcome")] : "");
  say(card.p.value, shown ? num(o.p) : "");
  card.p.fill.style.width = shown && o.p !== null ? width(o.p) : "0";
  card.mini.style.width = shown && o.p !== null ? width(o.p) : "0";
  const lost = round.drafts.find((d) => d.status === "rejected");
  say(card.note, shown ? addedNote(o, n, lost, round) : !n ? "" : tn("card.waiting", n, { n: count(n) }));
}

function addedNote(o, n, lost, round) {
  if (o.kind === "none") return t("card.ended", { n: acceptedOf(round) });
  if (lost) return t("card.replaces", { lost: quoted(lost.text, 14), i: round.drafts.indexOf(lost) + 1 });
  return t(n ? "card.free" : "card.alone");
}
