// Below the cards: why this token stayed or fell, what both models wanted at its place (or what was left over for the
// replacement), and the clock of this round.

const version = new URL(import.meta.url).search;
const { h, say, mark } = await import(`./dom.js${version}`);
const { PHASES, lanesOf, seenAt } = await import(`./model.js${version}`);
const { why } = await import(`./reasons.js${version}`);
const { count, decimals, num, pair, quoted, short, t, time, tn, tokens } = await import(`./words.js${version}`);

export class Why {
  constructor() {
    this.title = h("h3", {});
    this.text = h("p", {});
    this.element = h("section", { class: "box why", "aria-label": t("why") }, this.title, this.text);
  }

  draw(view, round, step, token) {
    const { title, text } = why(view, round, step, token);
    say(this.title, title);
    say(this.text, text.replace(/ ([=/]) /g, "\u00a0$1\u00a0")); // a formula is not broken over two lines
  }
}

/** What stands in the second box: { kind: "rule" | "position" | "residual" | "behind", ... } */
export function placesAt(view, round, step, token) {
  if (token === null) return { kind: "rule" };
  if (token === "outcome") {
    if (round.outcome.kind === "none") return { kind: "rule" };
    return {
      kind: round.outcome.residual_mass !== null ? "residual" : "behind",
      rows: round.outcome.rows,
      chosen: round.outcome.id,
    };
  }
  const draft = round.drafts[token];
  if (
    draft.status === "rejected" &&
    !view.greedy &&
    round.outcome.residual_mass !== null &&
    seenAt(step, round).verdicts > token
  ) {
    return { kind: "residual", rows: round.outcome.rows, chosen: seenAt(step, round).committed ? round.outcome.id : null };
  }
  return { kind: "position", rows: draft.rows, chosen: draft.id, number: token + 1 };
}

export class Places {
  constructor() {
    this.title = h("h3", {});
    this.rows = h("ul", { class: "rows" });
    this.foot = h("p", { class: "foot" });
    this.text = h("p", {});
    this.element = h("section", { class: "box places" }, this.title, this.text, this.rows, this.foot);
  }

  draw(view, round, step, token) {
    const places = placesAt(view, round, step, token);
    mark(this.element, "data-kind", places.kind);
    const [title, text, foot] = this.words(view, round, places);
    say(this.title, title);
    mark(this.element, "aria-label", title);
    say(this.text, text);
    say(this.foot, foot);
    this.rows.replaceChildren(...(places.rows ?? []).map((row) => listRow(places, row)));
  }

  words(view, round, places) {
    if (places.kind === "position") return [t("places.position", { n: places.number }), "", ""];
    if (places.kind === "residual") {
      const known = round.outcome.u !== null && places.chosen !== null;
      const drawn = known ? t("places.drawn_too", { u: num(round.outcome.u) }) : "";
      return [t("places.left"), "", t("places.sum", { mass: num(round.outcome.residual_mass), drawn })];
    }
    if (places.kind === "behind") {
      const { u, kind } = round.outcome;
      const next = kind === "bonus" && round.drafts.length;
      const drawn = u === null ? t("places.first") : t("places.drawn", { u: num(u) });
      return [t(next ? "places.next" : "places.this"), "", drawn];
    }
    const rule = !round.drafts.length ? "none" : view.greedy ? "greedy" : "sampled";
    return [t("places.rule"), t(`places.rule.${rule}`), ""];
  }
}

const percent = (value) => `${Math.max(0, Math.min(1, value ?? 0)) * 100}%`;

/** One token of a distribution, as bars and as numbers. row: [id, text, p, q, left]. */
function listRow(places, [id, text, p, q, left]) {
  const chosen = id === places.chosen;
  const name = h("bdi", { class: "tok" }, short(text, 14));
  const bars = h("span", { class: "bars", "aria-hidden": "true" });
  const value = h("span", { class: "n" });
  if (places.kind === "residual") {
    const overlap = p === null ? 0 : Math.min(p, q ?? 0);
    bars.append(
      h(
        "span",
        { class: "stack" },
        h("i", { style: `width:${percent(overlap)}` }),
        h("b", { style: `left:${percent(overlap)};width:${percent(left)}` }),
      ),
    );
    value.append(num(left));
  } else {
    if (places.kind === "position") bars.append(h("span", { class: "bar q" }, h("i", { style: `width:${percent(q)}` })));
    bars.append(h("span", { class: "bar p" }, h("i", { style: `width:${percent(p)}` })));
    value.append(places.kind === "position" ? `${num(q)} | ${num(p)}` : num(p));
  }
  return h("li", { class: "placerow", "data-chosen": chosen }, name, bars, value);
}

export class Clock {
  constructor() {
    this.title = h("h3", {}, t("clock"));
    this.mine = lane("this-round");
    this.plain = lane("plain");
    this.foot = h("p", { class: "foot" });
    this.element = h(
      "section",
      { class: "box clock", "aria-label": t("clock") },
      this.title,
      this.mine.element,
      this.plain.element,
      this.foot,
    );
  }

  build(view, round, number) {
    this.compared = view.method !== "plain"; // a plain round against itself says nothing
    this.lanes = lanesOf(round, number, view.plain_step_seconds);
    const { parts, scale, plain } = this.lanes;
    this.segments = parts.map((part) =>
      h("i", {
        "data-part": part.kind,
        style: `width:${(part.seconds / scale) * 100}%`,
        title: `${t(`phase.${part.kind}`)} ${time(part.seconds)}`,
      }),
    );
    this.mine.bar.replaceChildren(...this.segments);
    mark(this.plain.element, "hidden", plain === null);
    if (plain) {
      const width = `width:${(plain.step / scale) * 100}%`;
      this.steps = Array.from({ length: plain.steps }, () => h("i", { "data-part": "plain", style: width }));
      this.plain.bar.replaceChildren(...this.steps);
      say(this.foot, t("clock.step", { time: time(plain.step) }));
    } else say(this.foot, t("clock.none"));
  }

  /** The clock runs with the states: drafting, then the pass, then judging; the comparison comes when the round is over. */
  draw(step) {
    const { parts, tokens: made, total, plain } = this.lanes;
    const over = step.phase === "commit";
    const order = { draft: 0, verify: 1, judge: 2, commit: 3 }[step.phase];
    parts.forEach((part, i) => mark(this.segments[i], "data-off", PHASES.indexOf(part.kind) > order));
    const sofar = parts.filter((part) => PHASES.indexOf(part.kind) <= order).reduce((sum, part) => sum + part.seconds, 0);
    say(this.mine.label, over ? t("clock.over", { tokens: tokens(made), time: time(total) }) : t("clock.so_far", { time: time(sofar) }));
    const told = plain && over && this.compared;
    say(this.title, told ? t("clock.faster", { ratio: decimals(plain.total / total, 1) }) : t("clock"));
    if (!plain) return;
    mark(this.plain.element, "data-off", !over);
    say(this.plain.label, tn("clock.plain", plain.steps, { n: count(plain.steps), time: time(plain.total) }));
  }
}

function lane(name) {
  const label = h("span", { class: "label" });
  const bar = h("span", { class: "lane", role: "presentation" });
  return { element: h("div", { class: `timing ${name}` }, label, bar), label, bar };
}

/** The round as a table, for those who read rather than watch. Complete, whatever the animation shows. */
export function tableOf(view, round, number) {
  const head = [t("table.place"), t("table.token"), "q", "p", "min(1, p/q)", "u", t("table.verdict")];
  const cell = (tag, text) => h(tag, tag === "th" ? { scope: "col" } : {}, text);
  const rows = round.drafts.map((d, i) => {
    const [chance, u] = d.u === null ? [num(d.accept_probability), "–"] : pair(d.accept_probability, d.u);
    const asked = view.greedy ? t("table.choice") : chance;
    return [String(i + 1), quoted(d.text, 40), num(d.q), num(d.p), asked, u, t(`verdict.${d.status}`)];
  });
  const o = round.outcome;
  if (o.kind !== "none") {
    const kind = t(`added.${o.kind === "bonus" && !round.drafts.length ? "own" : o.kind}`);
    rows.push([t("table.target"), quoted(o.text, 40), "–", num(o.p), "–", num(o.u), kind]);
  }
  return h(
    "table",
    {},
    h("caption", {}, t("table.round", { round: number + 1 })),
    h("thead", {}, h("tr", {}, ...head.map((text) => cell("th", text)))),
    h("tbody", {}, ...rows.map((row) => h("tr", {}, ...row.map((text) => cell("td", text))))),
  );
}
