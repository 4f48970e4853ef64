// The parts of the stage that need no browser: steps, words, numbers, text from bytes, and the player with a clock made by hand.
// Run by tests/test_stage.py, which hands over the views of the made-up traces: STAGE_VIEWS=views.json node --test stage.test.mjs

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";

const folder = new URL("../specdec/ui/static/", import.meta.url);
const { FAR_BEHIND, TextJoiner, catchUp, committedBy, draftLook, lanesOf, placeOf, speaksOf, stepOf, stepsOf } = await import(
  `${folder}model.js`
);
const { Player } = await import(`${folder}player.js`);
const { optionOf, wordsOf } = await import(`${folder}ask.js`);
const { Score, choices, questionsBefore } = await import(`${folder}predict.js`);
const { Presenter } = await import(`${folder}presenter.js`);
const { announce, cardLabel, why } = await import(`${folder}reasons.js`);
const { caption, num, pair, quoted, rule, spoken, time, use, visible, withDrafter } = await import(`${folder}words.js`);
use(JSON.parse(readFileSync(new URL("../assets/texts/stage.en.json", import.meta.url), "utf8")));

const samples = JSON.parse(readFileSync(process.env.STAGE_VIEWS, "utf8"));
const view = (name) => samples[name].view;
const all = Object.entries(samples);

// --- steps --------------------------------------------------------------------------------------------------------

test("a round goes draft, verify, one judge step for each judged draft, commit", () => {
  const steps = stepsOf(view("rejected").rounds, "speculative").filter((s) => s.round === 0);
  assert.deepEqual(
    steps.map((s) => [s.phase, s.token]),
    [
      ["draft", null],
      ["verify", null],
      ["judge", 0],
      ["judge", 1],
      ["judge", 2],
      ["commit", null],
    ],
  );
});

test("a plain round has nothing to draft or to judge, a look-up that found nothing has an empty draft step", () => {
  assert.deepEqual(
    stepsOf(view("plain").rounds, "plain")
      .slice(0, 2)
      .map((s) => s.phase),
    ["verify", "commit"],
  );
  assert.deepEqual(
    stepsOf(view("lookup").rounds, "speculative")
      .slice(0, 3)
      .map((s) => s.phase),
    ["draft", "verify", "commit"],
  );
});

test("appending rounds never renumbers a step", () => {
  const { rounds, method } = view("story");
  const whole = stepsOf(rounds, method);
  for (let n = 0; n <= rounds.length; n++) {
    const part = stepsOf(rounds.slice(0, n), method);
    assert.deepEqual(part, whole.slice(0, part.length));
  }
});

test("a verdict shows when it is judged, the tail is discarded at the commit and not before", () => {
  const round = view("rejected").rounds[0];
  const steps = stepsOf([round], "speculative");
  const looks = steps.map((s) => round.drafts.map((_, i) => draftLook(s, round, i)[0]).join("")); // first letters
  assert.deepEqual(looks, ["dddd", "ssss", "asss", "aass", "aars", "aard"]);
});

test("the stage speaks of the judged draft, then of the outcome, and of a clicked token of this round before all", () => {
  const round = view("rejected").rounds[0];
  const steps = stepsOf([round], "speculative");
  assert.deepEqual(
    steps.map((s) => speaksOf(s, round, null)),
    [null, null, 0, 1, 2, "outcome"],
  );
  assert.deepEqual(
    steps.map((s) => speaksOf(s, round, { round: 0, token: 3 })),
    [3, 3, 3, 3, 3, 3],
  );
  assert.equal(speaksOf(steps[2], round, { round: 7, token: 3 }), 0);
});

test("a jump finds the state of a round, or the next one that it has", () => {
  const { rounds, method } = view("lookup");
  const steps = stepsOf(rounds, method);
  assert.equal(steps[stepOf(steps, 1, "judge")].phase, "judge");
  assert.equal(steps[stepOf(steps, 0, "judge")].phase, "commit");
});

// --- text ---------------------------------------------------------------------------------------------------------

test("the text put together token by token is the output of the trace, byte for byte", () => {
  for (const [name, { view, output_text, end }] of all) {
    const joiner = new TextJoiner();
    const text = view.rounds
      .flatMap((r, i) => committedBy(r, i))
      .map((t) => (t.text === end ? "" : joiner.add(t).text))
      .join("");
    assert.equal(text, output_text, name);
  }
});

test("a character in parts waits for its last part, and belongs to the token that brings it", () => {
  const joiner = new TextJoiner();
  const part = (bytes) => joiner.add({ text: "", bytes });
  assert.deepEqual(part("f09f"), { text: "", open: "F0 9F" });
  assert.deepEqual(part("98"), { text: "", open: "F0 9F 98" });
  assert.deepEqual(part("80"), { text: "😀", open: "" });
  assert.deepEqual(part("c3"), { text: "", open: "C3" });
  assert.deepEqual(part("a941"), { text: "éA", open: "" });
  assert.deepEqual(joiner.add({ text: "\ufeffx", bytes: null }), { text: "\ufeffx", open: "" });
});

test("colours follow the tokens: origin of each committed token of a round", () => {
  const origins = (name, r = 0) => committedBy(view(name).rounds[r], r).map((t) => t.origin);
  assert.deepEqual(origins("rejected"), ["accepted", "accepted", "replacement"]);
  assert.deepEqual(origins("bonus"), ["accepted", "accepted", "accepted", "accepted", "bonus"]);
  assert.deepEqual(origins("lookup"), ["own"]);
  assert.deepEqual(origins("ends_in_drafts"), ["accepted", "accepted"]);
});

test("white space, control and turning characters of a token are visible, bytes stay as they are", () => {
  assert.equal(visible(" a b\n\t"), "␣a␣b↵⇥");
  assert.equal(visible("\u202eabc\u0000"), "⟨U+202E⟩abc⟨U+0000⟩");
  assert.equal(visible(""), "⟨empty⟩");
  assert.equal(visible("⟨F0 9F⟩"), "⟨F0 9F⟩");
  assert.equal(quoted("x".repeat(60), 10), "“xxxxx…xxxx”");
  assert.deepEqual(["\n", " ", "", " the", ",", "constructor"].map(spoken), [
    "a line break",
    "a space",
    "an empty token",
    "the",
    "comma",
    "constructor",
  ]);
});

// --- numbers ------------------------------------------------------------------------------------------------------

test("a probability is never rounded to a certainty that it is not", () => {
  assert.deepEqual(
    [0.62, 0.06, 0.0163, 0.0003, 0.5, 0, 1].map((v) => num(v)),
    [".62", ".06", ".016", ".0003", ".50", "0", "1"],
  );
  assert.deepEqual(
    [0.9999999, 0.99996, 0.9961, 1e-9, 0.000004].map((v) => num(v)),
    [">.9999", ".99996", ".996", "<.000001", ".000004"],
  );
});

test("numbers that are compared can be told apart", () => {
  assert.deepEqual(pair(0.8, 0.7999), [".8000", ".7999"]);
  assert.deepEqual(pair(0.39, 0.72), [".39", ".72"]);
  for (const [, { view }] of all) {
    for (const d of view.rounds.flatMap((r) => r.drafts)) {
      if (d.u === null || d.u === d.accept_probability) continue;
      const [a, b] = pair(d.accept_probability, d.u);
      assert.notEqual(a, b);
    }
  }
});

test("the rule says what the numbers say", () => {
  const [first, second, third] = view("rejected").rounds[0].drafts;
  assert.equal(rule(first), "min(1, .71 / .62) = 1: always kept");
  assert.equal(rule(second), "min(1, .44 / .55) = .80 > .51");
  assert.equal(rule(third), "min(1, .16 / .41) = .39 ≤ .72");
  assert.equal(rule(third, true), ".16 / .41 = .39 ≤ .72");
});

test("times are in milliseconds, and in seconds when long", () => {
  assert.deepEqual([0.0234, 0.008, 0.00002, 0, 1.26, 12].map(time), ["23 ms", "8.0 ms", "<0.1 ms", "0 ms", "1.3 s", "12 s"]);
});

test("the two clocks are to scale: this round against as many plain steps as it made tokens", () => {
  const lanes = lanesOf(view("rejected").rounds[0], 0, 0.019);
  assert.equal(lanes.tokens, 3);
  assert.ok(Math.abs(lanes.total - (4 * 0.002 + 0.024 + 0.0004)) < 1e-9);
  assert.ok(Math.abs(lanes.plain.total - 0.057) < 1e-9);
  assert.equal(lanes.scale, lanes.plain.total);
  assert.equal(lanesOf(view("rejected").rounds[0], 0, null).plain, null);
});

// --- sentences ----------------------------------------------------------------------------------------------------

test("every step of every sample has its sentences, complete and short enough for the box", () => {
  for (const [name, { view }] of all) {
    for (const step of stepsOf(view.rounds, view.method)) {
      const round = view.rounds[step.round];
      const tokens = [speaksOf(step, round, null), ...round.drafts.keys(), "outcome"];
      for (const token of tokens) {
        const { title, text } = why(view, round, step, token);
        for (const words of [title, text, announce(view, round, step), caption(view, round, step)]) {
          assert.doesNotMatch(words, /undefined|NaN|null|Infinity|\[object/, `${name}: ${words}`);
          assert.ok(words.length > 0, name);
        }
        assert.ok(text.length <= 235, `${name}: ${text.length} characters: ${text}`);
      }
    }
  }
});

test("the sentence of a token carries this run's own numbers", () => {
  const v = view("rejected");
  const steps = stepsOf(v.rounds, v.method);
  const { title, text } = why(v, v.rounds[0], steps[4], 2);
  assert.equal(title, "“␣invoice” falls, “␣report” takes its place");
  assert.match(text, /surer of it \(\.41\) than the target \(\.16\).*\.16 \/ \.41 = \.39\. This time u = \.72/);
  assert.match(why(v, v.rounds[0], steps[5], "outcome").text, /chance \.34 \/ \.43 = \.79/);
});

test("greedy speaks of the first choice and of no chance, no u, no gate", () => {
  const v = view("greedy");
  for (const step of stepsOf(v.rounds, v.method)) {
    const round = v.rounds[step.round];
    const said = why(v, round, step, speaksOf(step, round, null)).text + announce(v, round, step);
    assert.doesNotMatch(said, /\bu\b|min\(1/);
  }
  assert.match(
    why(v, v.rounds[0], { round: 0, phase: "judge", token: 2 }, 2).text,
    /first choice\? That is “␣report” \(p = \.52\)/,
  );
});

test("nothing is told before the animation shows it", () => {
  const v = view("rejected");
  const round = v.rounds[0];
  assert.equal(cardLabel(v, round, 2, "drafted"), "Draft 3 of 4: invoice, draft q .41");
  assert.equal(cardLabel(v, round, 2, "scored"), "Draft 3 of 4: invoice, draft q .41, target p .16");
  assert.match(cardLabel(v, round, 2, "rejected"), /rejected, u \.72 is not below \.39$/);
  const [draft, verify] = stepsOf(v.rounds, v.method);
  assert.doesNotMatch(announce(v, round, draft), /\bp\b|accepted|rejected|report/);
  assert.doesNotMatch(announce(v, round, verify), /accepted|rejected|report/);
});

test("a drafter that found nothing is said to have found nothing", () => {
  const v = view("lookup");
  const [step] = stepsOf(v.rounds, v.method);
  assert.match(announce(v, v.rounds[0], step), /Prompt look-up found nothing to copy/);
});

test("where two drafters take turns, the one that drafts is named", () => {
  const copies = { ...view("lookup"), drafter: "head-lookup" };
  const round = copies.rounds[1];
  assert.equal(round.copied, true);
  assert.match(caption(copies, round, { phase: "draft" }), /^Prompt look-up copies three tokens from the text so far · /);
  assert.equal(why(copies, round, { phase: "draft" }, null).title, "A guess that costs nothing");
  const writes = { ...view("rejected"), drafter: "head-lookup" };
  assert.equal(writes.rounds[0].copied, false);
  assert.match(caption(writes, writes.rounds[0], { phase: "draft" }), /^The attached head writes four tokens, one after another · /);
  assert.match(announce(writes, writes.rounds[0], { phase: "draft", round: 0 }), /The attached head wrote four tokens/);
  assert.equal(withDrafter(writes), "with the attached head and prompt look-up, γ = 4");
});

// --- player -------------------------------------------------------------------------------------------------------

/** A player over a sample, with a clock that is moved by hand. */
function playerOf(name, rounds = null) {
  const { rounds: every, method } = view(name);
  const clock = { pending: null, rates: [] };
  const shown = [];
  const timer = (ms, done) => {
    const mine = (clock.pending = { ms, done, paused: false, rate: 1 });
    return {
      rate: (factor) => (mine.rate = factor),
      pause: () => (mine.paused = true),
      resume: () => (mine.paused = false),
      cancel: () => clock.pending === mine && (clock.pending = null),
    };
  };
  const player = new Player({ show: (index, how) => shown.push([index, how]), timer });
  const give = (n) => [stepsOf(every.slice(0, n), method), every.slice(0, n)];
  const tick = () => {
    const { done } = clock.pending;
    clock.pending = null;
    done();
  };
  return { player, clock, shown, tick, give, count: rounds ?? every.length };
}

test("playing shows every step once, in order, with movement, and stops at the end", () => {
  const { player, shown, tick, clock, give, count } = playerOf("rejected");
  const [steps, rounds] = give(count);
  player.begin(steps, rounds, { active: false });
  player.play();
  while (clock.pending) tick();
  assert.deepEqual(shown, [[0, "still"], ...steps.slice(1).map((_, i) => [i + 1, "move"])]);
  assert.equal(player.playing, false);
  assert.ok(player.atEnd);
});

test("play at the end begins again; a pause keeps the place and the running clock", () => {
  const { player, clock, give, tick } = playerOf("bonus");
  player.begin(...give(1), { active: false, index: 99 });
  assert.ok(player.atEnd);
  player.play();
  assert.equal(player.index, 0);
  tick();
  player.pause();
  assert.ok(clock.pending.paused);
  const running = clock.pending;
  player.play();
  assert.equal(clock.pending, running);
  assert.equal(running.paused, false);
  assert.equal(player.index, 1);
});

test("a step by hand stops playing; one step on moves, a step back and a jump do not", () => {
  const { player, shown, clock, give } = playerOf("rejected");
  player.begin(...give(4), { active: false, playing: true });
  player.go(1);
  player.go(0);
  player.go(10);
  player.go(99);
  assert.equal(player.playing, false);
  assert.equal(clock.pending, null);
  const last = player.steps.length - 1;
  assert.deepEqual(shown, [
    [0, "move"],
    [1, "move"],
    [0, "still"],
    [10, "still"],
    [last, "still"],
  ]);
});

test("appended rounds do not disturb the step that is being shown", () => {
  const { player, clock, shown, give, tick } = playerOf("story");
  player.begin(...give(1), { active: true, playing: true, following: true });
  tick();
  const running = clock.pending;
  player.update(...give(2), { active: true });
  assert.equal(clock.pending, running);
  assert.equal(player.index, 1);
  assert.deepEqual(shown.at(-1), [1, "append"]);
});

test("a live run that is shown to its end waits for the next round and goes on by itself", () => {
  const { player, clock, give, tick } = playerOf("story");
  player.begin(...give(0), { active: true, playing: true, following: true });
  assert.equal(clock.pending, null);
  player.update(...give(1), { active: true });
  while (clock.pending) tick();
  assert.ok(player.playing && player.atEnd);
  player.update(...give(2), { active: true });
  assert.equal(player.steps[player.index].round, 1);
  while (clock.pending) tick();
  player.update(...give(2), { active: false });
  assert.equal(player.playing, false);
});

test("following is slow while it can be, faster when rounds wait, and leaves none out unless it is far behind", () => {
  assert.equal(catchUp(0), 1);
  assert.equal(catchUp(1), 1);
  assert.ok(catchUp(3) > 5 && catchUp(100) <= 24);
  const { player, clock, shown, give, tick } = playerOf("story");
  player.begin(...give(1), { active: true, playing: true, following: true });
  player.update(...give(FAR_BEHIND), { active: true });
  assert.equal(clock.pending.rate, catchUp(FAR_BEHIND - 1));
  while (clock.pending && !player.atEnd) tick();
  const visited = shown.filter(([, how]) => how === "move").map(([index]) => index);
  assert.deepEqual(visited, [...player.steps.keys()]);
});

test("far behind, following skips to the newest rounds; after the run's end it skips nothing", () => {
  const { player, give, tick } = playerOf("story");
  player.begin(...give(1), { active: true, playing: true, following: true });
  player.update(...give(20), { active: true });
  tick();
  assert.equal(player.steps[player.index].round, 18);
  const calm = playerOf("story");
  calm.player.begin(...calm.give(1), { active: true, playing: true, following: true });
  calm.player.update(...calm.give(20), { active: false });
  calm.tick();
  assert.equal(calm.player.steps[calm.player.index].round, 0);
});

test("a person who pauses a live run is left in peace, and Live brings the newest round", () => {
  const { player, clock, give } = playerOf("story");
  player.begin(...give(2), { active: true, playing: true, following: true });
  player.pause();
  player.update(...give(9), { active: true });
  assert.equal(player.index, 0);
  assert.ok(clock.pending.paused);
  player.follow();
  assert.equal(player.steps[player.index].round, 8);
});

test("speed is for movement and waiting alike", () => {
  const { player, clock, give } = playerOf("bonus");
  player.begin(...give(1), { active: false, playing: true });
  player.setSpeed(4);
  assert.equal(clock.pending.rate, 4);
});

// --- predict first ------------------------------------------------------------------------------------------------

test("only a verdict is asked about, and behind a rejection also the replacement; the right answers are the run's own", () => {
  const v = view("rejected");
  const steps = stepsOf(v.rounds, v.method).filter((s) => s.round === 0);
  const asked = steps.map((s) => questionsBefore(v, s).map((q) => [q.kind, q.options[q.answer]]));
  assert.deepEqual(asked, [
    [],
    [],
    [["verdict", "accept"]],
    [["verdict", "accept"]],
    [
      ["verdict", "reject"],
      ["replacement", " report"],
    ],
    [],
  ]);
});

test("the tokens to choose from are the likeliest recorded ones, at most four, in an order of their own that never changes", () => {
  let moved = 0;
  for (const [, { view }] of all) {
    for (const round of view.rounds.filter((r) => r.outcome.kind === "replacement")) {
      const fallen = round.drafts.find((d) => d.status === "rejected");
      const rows = choices(round, fallen);
      assert.ok(rows.length <= 4 && rows.some(([id]) => id === round.outcome.id));
      assert.equal(new Set(rows.map(([id]) => id)).size, rows.length);
      assert.deepEqual(choices(round, fallen), rows);
      if (round.outcome.rows.length >= 5) assert.ok(rows.every(([id]) => id !== fallen.id));
      moved += rows[0][0] === round.outcome.rows[0][0] ? 0 : 1;
    }
  }
  assert.ok(moved > 3, "the first one of the list would be the right one too often");
});

test("a question says p, q and u and not the verdict; a greedy one has no u", () => {
  const texts = Object.fromEntries(
    Object.entries(JSON.parse(readFileSync(new URL("../assets/texts/present.en.json", import.meta.url), "utf8")))
      .filter(([name]) => name.startsWith("predict."))
      .map(([name, text]) => [name.slice(8), text]),
  );
  for (const name of ["rejected", "greedy"]) {
    const v = view(name);
    const steps = stepsOf(v.rounds, v.method);
    for (const step of steps) {
      for (const question of questionsBefore(v, step)) {
        const words = wordsOf(texts, v, v.rounds[step.round], question, null);
        assert.doesNotMatch(`${words.title} ${words.text} ${words.spoken}`, /\{|undefined|null|accepted|rejected/);
        if (question.kind === "verdict") assert.equal(/u = /.test(words.text), !v.greedy);
        assert.equal(words.options.length, question.options.length);
      }
    }
  }
  const [verdict] = questionsBefore(view("rejected"), { round: 0, phase: "judge", token: 2 });
  const words = wordsOf(texts, view("rejected"), view("rejected").rounds[0], verdict, false);
  assert.equal(words.title, "✕ Not this time. Accept or reject “␣invoice”?");
  assert.equal(words.text, "q = .41, p = .16, and u = .72 was thrown. It stays if u < p / q.");
  assert.equal(words.spoken.split("u < p / q. ")[1], "A: Accept, R: Reject");
});

test("A, R and the numbers mean options, and only those that are there", () => {
  const [verdict, replacement] = questionsBefore(view("rejected"), { round: 0, phase: "judge", token: 2 });
  assert.deepEqual(["a", "A", "r", "1", "x"].map((key) => optionOf(verdict, key)), [0, 0, 1, null, null]);
  assert.deepEqual(["1", "3", "5", "a"].map((key) => optionOf(replacement, key)), [0, 2, null, null]);
  assert.equal(optionOf({ ...replacement, options: ["x", "y"] }, "3"), null);
});

test("each question counts once, and what was only shown does not count", () => {
  const score = new Score();
  score.add("0.0.verdict", true);
  score.add("0.1.verdict", false);
  score.add("0.1.verdict", true);
  score.add("0.2.verdict", null);
  assert.deepEqual(score.counts, { right: 1, total: 2 });
  assert.ok(score.has("0.2.verdict"));
});

test("the gate holds one step forward back, by hand and while playing, and nothing else; behind it playing goes on", () => {
  const { player, shown, clock, give, tick } = playerOf("rejected");
  const asked = [];
  player.gate = (index) => {
    asked.push([index, player.playing]);
    return index !== 2;
  };
  player.begin(...give(4), { active: false, playing: true });
  tick();
  tick();
  assert.deepEqual(asked, [[1, true], [2, true]]);
  assert.equal(player.playing, false);
  assert.equal(player.index, 1);
  player.go(2);
  assert.deepEqual(asked.at(-1), [2, false]);
  assert.equal(player.index, 1);
  player.proceed({ playing: true });
  assert.deepEqual(shown.at(-1), [2, "move"]);
  assert.ok(player.playing && clock.pending);
  player.go(0);
  player.go(9);
  assert.equal(asked.length, 3);
});

test("a card of the lesson names a step, or the nearest one that the round has", () => {
  const { rounds, method } = view("rejected");
  const steps = stepsOf(rounds, method);
  assert.deepEqual(steps[placeOf(steps, { round: 0, phase: "judge", token: 2 })], { round: 0, phase: "judge", token: 2 });
  assert.equal(steps[placeOf(steps, { round: 1, phase: "verify" })].round, 1);
  assert.equal(steps[placeOf(steps, { round: 0, phase: "judge", token: 9 })].phase, "judge");
});

test("in front of a class a key goes on within the card, and is left to the lesson at its end", () => {
  const { player, give } = playerOf("rejected");
  const presenter = new Presenter();
  const free = { asking: null };
  const [steps, rounds] = give(4);
  player.begin(steps, rounds, { active: false, index: 1 });
  presenter.bounds = [1, 3];
  assert.equal(presenter.go("back", player, free), false);
  assert.ok(presenter.go("on", player, free) && presenter.go("on", player, free));
  assert.equal(player.index, 3);
  assert.equal(presenter.go("on", player, free), false);
  assert.ok(presenter.go("start", player, free));
  assert.equal(player.index, 1);
  presenter.bounds = null;
  assert.ok(presenter.go("end", player, free));
  assert.ok(player.atEnd && !presenter.go("on", player, free));
  player.active = true;
  assert.equal(presenter.go("on", player, free), true); // a live run: the next round is on the way
  let answered;
  const asking = { asking: {}, answer: (option) => (answered = option) };
  assert.ok(presenter.go("on", player, asking));
  assert.equal(answered, null);
});
