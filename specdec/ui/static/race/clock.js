// One clock for both sides of a race: what is there at each moment, and how the clock runs. No document here.

export const SPEEDS = [0.25, 0.5, 1, 2];
const NEAR = 1e-6; // seconds

/** Tokens of a side that are there at time t (s). */
export function shownAt(lane, t) {
  let low = 0;
  let high = lane.tokens.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (lane.tokens[middle].at <= t + NEAR) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Passes of the target that have ended at time t. */
export function passesAt(lane, t) {
  const shown = shownAt(lane, t);
  return lane.ends.filter((end) => end <= shown && end > 0).length;
}

export const firstOf = (lane) => lane.tokens[0]?.at ?? null;
export const lastOf = (lane) => lane.tokens.at(-1)?.at ?? null;

/** Length of the race: when the last side is complete. */
export const lengthOf = (lanes) => Math.max(0, ...lanes.map((lane) => lastOf(lane) ?? 0));

/** The side that is complete first, null when both take the same time, or where they did not make the same number of tokens. */
export function winnerOf(lanes) {
  if (lanes[0].tokens.length !== lanes[1].tokens.length) return null;
  const [a, b] = lanes.map(lastOf);
  if (a === null || b === null || Math.abs(a - b) < NEAR) return null;
  return a < b ? 0 : 1;
}

/** Every moment at which text appears on either side, with the start; in order, each once. */
export function momentsOf(lanes) {
  const all = [0, ...lanes.flatMap((lane) => lane.tokens.map((token) => token.at))].sort((a, b) => a - b);
  return all.filter((t, i) => i === 0 || t - all[i - 1] > NEAR);
}

/** The moment that says most in a still picture: the first side is complete, the other is not. */
export function tellingMoment(lanes) {
  const ends = lanes.map(lastOf).filter((t) => t !== null);
  return ends.length === lanes.length ? Math.min(...ends) : lengthOf(lanes);
}

/**
 * @param draw   (t, how) => void; how: "run" while the clock runs, "still" after a jump
 * @param frame  (callback) => handle, with cancel(handle); now: () => ms
 */
export class RaceClock {
  constructor({ draw, changed = () => {}, frame, cancel, now }) {
    Object.assign(this, { draw, changed, frame, cancel, now });
    Object.assign(this, { moments: [0], length: 0, t: 0, playing: false, fresh: true, speed: 1, handle: null });
  }

  /** Another race. at: where it opens; fresh: Play begins at the start all the same, until somebody has moved. */
  begin(lanes, at, { fresh = true } = {}) {
    this.pause();
    this.moments = momentsOf(lanes);
    this.length = lengthOf(lanes);
    this.fresh = fresh;
    this.t = Math.min(at, this.length);
    this.draw(this.t, "still");
    this.changed();
  }

  get atEnd() {
    return this.t >= this.length - NEAR;
  }

  play() {
    if (this.playing || !this.length) return;
    if (this.fresh || this.atEnd) this.t = 0;
    this.fresh = false;
    this.playing = true;
    this.last = this.now();
    this.draw(this.t, "run");
    this.wait();
    this.changed();
  }

  pause() {
    if (this.handle !== null) this.cancel(this.handle);
    this.handle = null;
    if (!this.playing) return;
    this.playing = false;
    this.changed();
  }

  toggle() {
    if (this.playing) this.pause();
    else this.play();
  }

  /** Jump to time t and stay there. */
  seek(t) {
    this.pause();
    this.fresh = false;
    this.t = Math.min(Math.max(0, t), this.length);
    this.draw(this.t, "still");
    this.changed();
  }

  /** To the next moment at which text appears, or the one before. */
  step(by) {
    const { moments, t } = this;
    const next = by > 0 ? moments.find((m) => m > t + NEAR) : moments.findLast((m) => m < t - NEAR);
    this.seek(next ?? (by > 0 ? this.length : 0));
  }

  setSpeed(speed) {
    this.speed = speed;
    this.changed();
  }

  wait() {
    this.handle = this.frame(() => this.tick());
  }

  tick() {
    this.handle = null;
    if (!this.playing) return;
    const now = this.now();
    this.t = Math.min(this.length, this.t + ((now - this.last) / 1000) * this.speed);
    this.last = now;
    if (this.atEnd) this.playing = false;
    this.draw(this.t, "run");
    if (this.playing) this.wait();
    else this.changed();
  }
}
