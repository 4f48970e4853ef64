// What surrounds the round: where the run comes from and how it stands, the legend, the state pills and the controls.

const version = new URL(import.meta.url).search;
const { h, icon, mark, say } = await import(`./dom.js${version}`);
const { PHASES, judgedOf } = await import(`./model.js${version}`);
const { SPEEDS } = await import(`./player.js${version}`);
const { ending, t, tokens } = await import(`./words.js${version}`);

const ACTIVE = ["loading", "queued", "running"];
export const isActive = (view) => ACTIVE.includes(view.state);

/** Label of the run, how it stands, and what the colours mean. Always visible. */
export class Top {
  constructor() {
    this.badgeIcon = h("span", { class: "badgeicon" });
    this.badgeText = h("span", {});
    this.badge = h("span", { class: "badge" }, this.badgeIcon, this.badgeText);
    this.status = h("span", { class: "status" });
    const item = (origin, text) => h("li", { class: `key ${origin}` }, h("span", { class: `t ${origin}` }, text));
    this.own = item("own", t("added.own"));
    this.legend = h(
      "ul",
      { class: "legend", "aria-label": t("legend") },
      h("li", { class: "key prompt" }, t("legend.prompt")),
      item("accepted", t("legend.accepted")),
      item("replacement", t("added.replacement")),
      item("bonus", t("added.bonus")),
      this.own,
    );
    this.element = h("div", { class: "top" }, this.badge, this.status, this.legend);
  }

  draw(view, newTokens) {
    mark(this.badge, "hidden", !view.label);
    mark(this.badge, "data-kind", view.kind);
    if (this.kind !== view.kind) this.badgeIcon.replaceChildren(icon(view.kind === "recording" ? "tape" : "live"));
    this.kind = view.kind;
    say(this.badgeText, view.label);
    mark(this.status, "data-state", view.state);
    say(this.status, statusOf(view, newTokens));
    mark(this.status, "title", this.status.textContent || null);
    const lone = view.rounds.some((r) => !r.drafts.length);
    const drafting = view.method !== "plain";
    mark(this.own, "hidden", !lone);
    for (const key of this.legend.children) {
      if (!key.classList.contains("prompt") && key !== this.own) mark(key, "hidden", !drafting);
    }
  }
}

function statusOf(view, newTokens) {
  const made = { tokens: tokens(newTokens), message: view.message };
  if (view.state === "loading") return t("status.loading");
  if (view.state === "queued") return view.queue === null ? t("status.queued") : t("status.place", { n: view.queue });
  if (view.state === "running") return t(newTokens ? "status.so_far" : "status.running", made);
  if (view.state === "failed") return t(newTokens ? "status.failed_after" : "status.failed", made);
  if (view.state === "stopped") return t(newTokens ? "status.stopped_after" : "status.stopped", made);
  if (view.state === "done") return made.tokens + (view.finish_reason ? `, ${ending(view.finish_reason)}` : "");
  return "";
}

/** Shown in place of the cards while there is no round yet. */
export class Blank {
  constructor() {
    this.title = h("h3", {});
    this.text = h("p", {});
    this.bar = h("progress", { max: "1", "aria-label": t("loading") });
    this.element = h(
      "div",
      { class: "blank" },
      h("div", { class: "blankcards", "aria-hidden": "true" }, ..."12345678".split("").map(() => h("i", {}))),
      h("div", { class: "blanktext" }, this.title, this.text, this.bar),
    );
  }

  draw(view) {
    const [title, text] = {
      empty: [t("blank.empty"), view.message],
      loading: [t("blank.loading"), view.message],
      queued: [
        t("blank.queued"),
        view.message ||
          (view.queue === null
            ? t("blank.queued.text")
            : view.queue <= 1
              ? t("blank.queued.next")
              : t("blank.queued.more", { n: view.queue - 1 })),
      ],
      running: [t("blank.running"), view.message || t("blank.running.text")],
      stopped: [t("blank.stopped"), view.message || t("blank.stopped.text")],
      failed: [t("blank.failed"), view.message],
      done: [t("blank.done"), view.message || t("blank.done.text")],
    }[view.state];
    say(this.title, title);
    say(this.text, text);
    mark(this.element, "data-state", view.state);
    mark(this.bar, "hidden", view.state !== "loading");
    if (view.progress === null) this.bar.removeAttribute("value");
    else this.bar.value = view.progress;
    return `${title}. ${text}`;
  }
}

/** Round number (a list to jump with) and the four states. */
export class Heading {
  constructor({ goRound, more = "" }) {
    this.select = h("select", { "aria-label": t("round"), onchange: () => goRound(Number(this.select.value), null) });
    this.of = h("span", { class: "of" });
    this.pills = PHASES.map((phase, i) => {
      const extra = h("span", { class: "sub" });
      const button = h(
        "button",
        { type: "button", class: "pill", onclick: () => goRound(this.round, phase) },
        h("span", { class: "no" }, `${i + 1} `),
        t(`phase.${phase}`),
        extra,
      );
      return { phase, button, extra };
    });
    this.element = h(
      "div",
      { class: "heading" },
      h("label", { class: "roundpick" }, h("b", {}, t("round")), this.select, this.of),
      h("div", { class: "pills", role: "group", "aria-label": t("round.states") }, ...this.pills.map((p) => p.button)),
      more,
    );
  }

  draw(view, round, step) {
    const rounds = view.rounds.length;
    while (this.select.options.length > rounds) this.select.remove(this.select.options.length - 1);
    for (let i = this.select.options.length; i < rounds; i++) this.select.add(new Option(String(i + 1), String(i)));
    this.round = step.round;
    if (this.select.value !== String(step.round)) this.select.value = String(step.round);
    say(this.of, t(isActive(view) ? "round.of_so_far" : "round.of", { n: rounds }));
    const now = PHASES.indexOf(step.phase);
    this.pills.forEach(({ phase, button, extra }, i) => {
      const missing = (phase === "judge" && !round.drafts.length) || (phase === "draft" && view.method === "plain");
      mark(button, "disabled", missing);
      mark(button, "aria-current", i === now ? "step" : null);
      mark(button, "data-done", i < now && !missing);
      say(extra, phase === "judge" && i === now ? `\u00a0${t("judge.of", { i: step.token + 1, n: judgedOf(round) })}` : "");
    });
  }
}

/** Buttons, scrubber, speed. */
export class Controls {
  constructor({ player }) {
    this.player = player;
    const button = (name, label, onclick, ...more) =>
      h("button", { type: "button", class: name, "aria-label": label, title: label, onclick }, ...more);
    const round = (by) => () => player.goRound((player.steps[player.index]?.round ?? 0) + by);
    this.playIcon = h("span", { class: "playicon" });
    this.playText = h("span", {});
    this.first = button("first", t("controls.previous"), round(-1), icon("first"));
    this.back = button("back", t("controls.back"), () => player.go(player.index - 1), icon("back"));
    this.play = h("button", { type: "button", class: "play", onclick: () => player.toggle() }, this.playIcon, this.playText);
    this.step = button("step", t("controls.step"), () => player.go(player.index + 1), icon("step"));
    this.last = button("last", t("controls.next"), round(1), icon("last"));
    this.range = h("input", {
      type: "range",
      min: "0",
      step: "1",
      "aria-label": t("controls.place"),
      oninput: () => player.go(Number(this.range.value)),
    });
    this.ticks = h("span", { class: "ticks", "aria-hidden": "true" }); // where rounds begin
    this.speed = h(
      "select",
      { class: "speed", "aria-label": t("controls.speed"), onchange: () => player.setSpeed(Number(this.speed.value)) },
      ...SPEEDS.map((s) => new Option(`${s}×`, String(s))),
    );
    this.live = h("button", { type: "button", class: "live", onclick: () => player.follow() }, icon("live"), t("controls.live"));
    this.keys = h(
      "span",
      { class: "keys", "aria-hidden": "true" },
      h("kbd", {}, t("controls.space")),
      " ",
      h("kbd", {}, "←"),
      " ",
      h("kbd", {}, "→"),
    );
    this.element = h(
      "div",
      { class: "controls", role: "group", "aria-label": t("controls") },
      this.first,
      this.back,
      this.play,
      this.step,
      this.last,
      h("span", { class: "scrub" }, this.ticks, this.range),
      this.speed,
      this.live,
      this.keys,
    );
  }

  draw(view, valueText) {
    const { player } = this;
    const none = !player.steps.length;
    const again = player.atEnd && !player.active && !player.playing;
    const shape = none ? "play" : player.playing ? "pause" : again ? "again" : "play";
    if (this.shape !== shape) {
      this.playIcon.replaceChildren(icon(shape));
      say(this.playText, t(`controls.${shape}`));
      this.shape = shape;
    }
    for (const control of [this.first, this.back, this.play, this.step, this.last, this.range])
      mark(control, "disabled", none);
    if (!none) {
      mark(this.first, "disabled", player.index === 0);
      mark(this.back, "disabled", player.index === 0);
      mark(this.step, "disabled", player.atEnd);
      mark(this.last, "disabled", player.steps[player.index].round >= player.rounds.length - 1);
    }
    this.range.max = String(Math.max(0, player.steps.length - 1));
    this.range.value = String(player.index);
    this.range.style.setProperty("--done", `${(100 * player.index) / Math.max(1, player.steps.length - 1)}%`);
    mark(this.range, "aria-valuetext", valueText);
    this.drawTicks();
    if (this.speed.value !== String(player.speed)) this.speed.value = String(player.speed);
    mark(this.live, "hidden", view.kind !== "live" || !isActive(view));
    mark(this.live, "aria-pressed", player.following ? "true" : "false");
  }

  /** One mark a round on the scrubber, as long as they can be told apart. */
  drawTicks() {
    const { steps, rounds } = this.player;
    if (this.ticked === steps.length) return;
    this.ticked = steps.length;
    const starts =
      rounds.length > 1 && rounds.length <= 60
        ? steps.flatMap((s, i) => (i && s.round !== steps[i - 1].round ? [i] : []))
        : [];
    this.ticks.replaceChildren(...starts.map((i) => h("i", { style: `left:${(100 * i) / (steps.length - 1)}%` })));
  }
}
