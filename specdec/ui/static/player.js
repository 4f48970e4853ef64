// Where the animation stands and when it goes on. Knows steps and time, nothing of the document: `show` draws, `timer` waits.

const version = new URL(import.meta.url).search;
const { FAR_BEHIND, HOLD, catchUp, moveTime, stepOf } = await import(`./model.js${version}`);

export const SPEEDS = [0.5, 1, 2, 4];
const RESUME = 250; // ms at speed 1 between pressing Play and the next step

/**
 * @param show      (index, how) => void; how: "move" (with movement), "still" (at once), "append" (nothing but new data)
 * @param timer     (ms, done) => { rate(factor), pause(), resume(), cancel() }
 * @param changed   () => void, after anything that the controls show
 * @param gate      (index) => boolean, asked before one step forward; false: something comes first, and `proceed` goes on
 */
export class Player {
  constructor({ show, timer, changed = () => {}, gate = () => true }) {
    Object.assign(this, { show, startTimer: timer, changed, gate });
    Object.assign(this, {
      steps: [],
      rounds: [],
      active: false,
      index: 0,
      playing: false,
      following: false,
      speed: 1,
      skipped: 0,
    });
    this.timer = null;
  }

  /** Another run: begin at `index`. */
  begin(steps, rounds, { active, index = 0, playing = false, following = false }) {
    this.stopTimer();
    Object.assign(this, { steps, rounds, active, playing, following, skipped: 0 });
    this.index = Math.min(Math.max(0, index), Math.max(0, steps.length - 1));
    if (!steps.length) {
      this.playing &&= active;
      this.following &&= active;
      return this.changed();
    }
    this.show(this.index, playing ? "move" : "still");
    if (playing) this.wait(this.stepTime());
    this.changed();
  }

  /** More rounds of the same run, or its end. What is being shown goes on undisturbed. */
  update(steps, rounds, { active }) {
    const before = this.steps.length;
    Object.assign(this, { steps, rounds, active });
    if (!before && steps.length) {
      this.index = Math.min(this.index, steps.length - 1);
      this.show(this.index, this.playing ? "move" : "still");
      if (this.playing) this.wait(this.stepTime());
    } else if (this.playing && !this.timer && steps.length > before) this.advance();
    else {
      this.retime();
      if (this.playing && !this.timer && !active) this.playing = this.following = false;
      if (steps.length) this.show(this.index, "append");
    }
    this.changed();
  }

  get atEnd() {
    return this.index >= this.steps.length - 1;
  }

  /** Rounds that are there and not begun yet. */
  get backlog() {
    return this.steps.length ? this.rounds.length - 1 - this.steps[this.index].round : 0;
  }

  /** Movement and waiting go this much faster than at speed 1. */
  get rate() {
    return this.speed * (this.following ? catchUp(this.backlog) : 1);
  }

  play() {
    if (this.playing) return;
    this.playing = true;
    if (this.timer) this.timer.resume();
    else if (this.atEnd && !this.active && this.steps.length) {
      this.index = 0;
      this.show(0, "move");
      this.wait(this.stepTime());
    } else if (!this.atEnd) this.wait(RESUME);
    this.changed();
  }

  pause() {
    this.playing = this.following = false;
    this.timer?.pause();
    this.changed();
  }

  toggle() {
    if (this.playing) this.pause();
    else this.play();
  }

  /** Show step `index` and stay there. One step forward moves, every other jump does not. */
  go(index) {
    if (!this.steps.length) return;
    const to = Math.min(Math.max(0, index), this.steps.length - 1);
    const how = to === this.index + 1 ? "move" : "still";
    this.stopTimer();
    this.playing = this.following = false;
    if (how === "move" && !this.gate(to)) return this.changed();
    this.index = to;
    this.show(to, how);
    this.changed();
  }

  /** The step that the gate held back. playing: go on playing behind it. */
  proceed({ playing }) {
    this.stopTimer();
    Object.assign(this, { playing, index: this.index + 1 });
    this.show(this.index, "move");
    if (playing) this.wait(this.stepTime());
    this.changed();
  }

  goRound(round, phase = null) {
    this.go(stepOf(this.steps, Math.min(Math.max(0, round), this.rounds.length - 1), phase));
  }

  /** Jump to the newest round and keep up from there. */
  follow() {
    this.stopTimer();
    Object.assign(this, { playing: true, following: true });
    if (this.steps.length) {
      this.index = stepOf(this.steps, this.rounds.length - 1);
      this.show(this.index, "move");
      this.wait(this.stepTime());
    }
    this.changed();
  }

  setSpeed(speed) {
    this.speed = speed;
    this.retime();
    this.changed();
  }

  stop() {
    this.stopTimer();
  }

  // --- inside -----------------------------------------------------------------------------------------------------

  stepTime() {
    const step = this.steps[this.index];
    return moveTime(step, this.rounds[step.round]) + HOLD[step.phase];
  }

  wait(ms) {
    this.stopTimer();
    this.timer = this.startTimer(ms, () => {
      this.timer = null;
      this.advance();
    });
    this.timer.rate(this.rate);
  }

  advance() {
    if (!this.playing) return;
    if (this.atEnd) {
      if (!this.active) this.playing = this.following = false; // the end of the run; a live one waits for its next round
      return this.changed();
    }
    if (!this.gate(this.index + 1)) {
      this.playing = this.following = false;
      return this.changed();
    }
    this.index += 1;
    if (this.following && this.active && this.backlog > FAR_BEHIND) {
      const round = this.rounds.length - 2;
      this.skipped = round - this.steps[this.index].round;
      this.index = stepOf(this.steps, round);
    }
    this.show(this.index, "move");
    this.wait(this.stepTime());
    this.changed();
  }

  retime() {
    this.timer?.rate(this.rate);
  }

  stopTimer() {
    this.timer?.cancel();
    this.timer = null;
  }
}
