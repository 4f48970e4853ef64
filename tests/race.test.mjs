// The clock of a race: what is there at each moment, and that it runs at the speed that was asked for. Run by test_race_figures.py.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import {
  RaceClock,
  lengthOf,
  momentsOf,
  passesAt,
  shownAt,
  tellingMoment,
  winnerOf,
} from "../specdec/ui/static/race/clock.js";

const { lanes } = JSON.parse(readFileSync(process.env.RACE_VIEW, "utf-8"));
const near = (a, b) => assert.ok(Math.abs(a - b) < 1e-4, `${a} is not ${b}`);

/** A clock whose time is moved by hand. */
function made(at = 0) {
  const it = { ms: 0, drawn: [], pending: null };
  it.clock = new RaceClock({
    draw: (t, how) => it.drawn.push([t, how]),
    frame: (callback) => ((it.pending = callback), 1),
    cancel: () => (it.pending = null),
    now: () => it.ms,
  });
  it.pass = (ms) => {
    it.ms += ms;
    const callback = it.pending;
    it.pending = null;
    callback?.();
  };
  it.clock.begin(lanes, at);
  return it;
}

test("plain tokens come one by one, those of a round together", () => {
  assert.deepEqual([0, 0.139, 0.14, 0.24, 0.2407, 9].map((t) => shownAt(lanes[0], t)), [0, 0, 1, 1, 2, 6]);
  assert.deepEqual([0, 0.18, 0.1805, 0.32, 0.3239].map((t) => shownAt(lanes[1], t)), [0, 0, 3, 3, 6]);
  assert.deepEqual([0.1, 0.1805, 1].map((t) => passesAt(lanes[1], t)), [0, 1, 2]);
});

test("the first to be complete wins, and the still picture is taken at that moment", () => {
  assert.equal(winnerOf(lanes), 1);
  assert.equal(winnerOf([lanes[0], lanes[0]]), null);
  assert.equal(winnerOf([lanes[0], { tokens: [], ends: [] }]), null);
  assert.equal(winnerOf([lanes[0], { ...lanes[1], tokens: lanes[1].tokens.slice(0, 3) }]), null); // a shorter text is no victory
  near(tellingMoment(lanes), 0.3238);
  near(lengthOf(lanes), 0.643);
  near(tellingMoment([lanes[0], { tokens: [], ends: [] }]), 0.643);
});

test("moments are those at which text appears, each once", () => {
  const moments = momentsOf(lanes);
  assert.equal(moments.length, 1 + 6 + 2);
  assert.deepEqual(moments, [...moments].sort((a, b) => a - b));
});

test("true speed is true speed, and a quarter is a quarter", () => {
  for (const [speed, expected] of [[1, 0.2], [0.5, 0.1], [0.25, 0.05], [2, 0.4]]) {
    const it = made();
    it.clock.setSpeed(speed);
    it.clock.play();
    for (let i = 0; i < 10; i++) it.pass(20);
    near(it.clock.t, expected);
  }
});

test("a change of speed on the way counts from then on", () => {
  const it = made();
  it.clock.play();
  it.pass(100);
  it.clock.setSpeed(0.5);
  it.pass(100);
  near(it.clock.t, 0.15);
});

test("a slow frame loses no time, and the clock stops exactly at the end", () => {
  const it = made();
  it.clock.play();
  it.pass(400);
  near(it.clock.t, 0.4);
  it.pass(5000);
  near(it.clock.t, 0.643);
  assert.equal(it.clock.playing, false);
  assert.equal(it.pending, null);
  it.clock.play(); // again, from the start
  near(it.clock.t, 0);
});

test("a pause stands still however long it lasts", () => {
  const it = made();
  it.clock.play();
  it.pass(100);
  it.clock.toggle();
  it.pass(60_000);
  near(it.clock.t, 0.1);
  it.clock.toggle();
  it.pass(50);
  near(it.clock.t, 0.15);
});

test("a race that opens in the middle plays from the start, until somebody has moved", () => {
  const fresh = made(0.3238);
  fresh.clock.play();
  near(fresh.clock.t, 0);
  const moved = made(0.3238);
  moved.clock.step(-1);
  moved.clock.play();
  assert.ok(moved.clock.t > 0.2);
});

test("steps go from text to text and stop at both ends", () => {
  const it = made();
  const seen = [];
  for (let i = 0; i < 10; i++) {
    it.clock.step(1);
    seen.push(it.clock.t);
  }
  assert.deepEqual(seen.slice(0, 8), momentsOf(lanes).slice(1));
  near(seen[9], 0.643);
  for (let i = 0; i < 12; i++) it.clock.step(-1);
  assert.equal(it.clock.t, 0);
  it.clock.seek(99);
  near(it.clock.t, 0.643);
  it.clock.seek(-1);
  assert.equal(it.clock.t, 0);
});

test("a race without any token has a clock of no length", () => {
  const it = made();
  it.clock.begin([{ tokens: [], ends: [] }, { tokens: [], ends: [] }], 0);
  it.clock.play();
  assert.equal(it.clock.playing, false);
});
