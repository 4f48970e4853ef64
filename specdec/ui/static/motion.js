// Movement of a step. Everything is drawn in its final state before; here it is moved from where it was, with the Web
// Animations API, so that a pause, another speed or a jump never leaves anything half-way.

const EASE = "cubic-bezier(.2,.8,.25,1)";
const LAND = "cubic-bezier(.3,1.45,.5,1)"; // a little past the end and back
const FLY = "cubic-bezier(.45,.05,.25,1)";

export class Motion {
  constructor(root) {
    this.root = root;
    this.running = new Set();
    this.ghosts = new Set();
    this.factor = 1;
  }

  /** Animate `element`; before its delay is over it stands in the first frame. */
  add(element, frames, { delay = 0, duration = 400, easing = EASE } = {}) {
    if (!element) return null;
    const animation = element.animate(frames, { delay, duration, easing, fill: "backwards" });
    animation.playbackRate = this.factor;
    this.running.add(animation);
    animation.onfinish = animation.oncancel = () => this.running.delete(animation);
    return animation;
  }

  /** Let a copy of a token fly to its place in the text, which will have scrolled by `ahead` px; `target` appears when it lands. */
  fly(from, target, { delay, ahead, duration = 560 }) {
    const box = this.root.getBoundingClientRect();
    const a = from.getBoundingClientRect();
    const b = target.getClientRects()[0] ?? target.getBoundingClientRect();
    if (!a.width || !b.height) return;
    const ghost = from.cloneNode(true);
    ghost.className = "ghost tok";
    ghost.setAttribute("aria-hidden", "true");
    Object.assign(ghost.style, { left: `${a.left - box.left}px`, top: `${a.top - box.top}px` });
    this.root.append(ghost);
    this.ghosts.add(ghost);
    const [x, y] = [b.left - a.left, b.top - ahead - a.top];
    const frames = [
      { transform: "none", opacity: 0 },
      { transform: `translate(${x * 0.08}px, ${y * 0.15 - 6}px) scale(1.08)`, opacity: 1, offset: 0.15 },
      { transform: `translate(${x}px, ${y}px) scale(1)`, opacity: 1, offset: 0.9 },
      { transform: `translate(${x}px, ${y}px) scale(1)`, opacity: 0 },
    ];
    const flight = this.add(ghost, frames, { delay, duration, easing: FLY });
    const land = () => {
      ghost.remove();
      this.ghosts.delete(ghost);
    };
    flight.addEventListener("finish", land);
    flight.addEventListener("cancel", land);
    this.add(target, [{ opacity: 0 }, { opacity: 0, offset: 0.99 }, { opacity: 1 }], {
      delay: 0,
      duration: delay + duration * 0.9,
      easing: "linear",
    });
  }

  rate(factor) {
    this.factor = factor;
    for (const animation of this.running) animation.updatePlaybackRate(factor);
  }

  pause() {
    for (const animation of this.running) animation.pause();
  }

  resume() {
    for (const animation of this.running) animation.play();
  }

  /** End all movement at once: everything stands in its final state. */
  finish() {
    for (const animation of [...this.running]) animation.cancel();
    for (const ghost of [...this.ghosts]) ghost.remove();
    this.running.clear();
    this.ghosts.clear();
  }

  /** A pause of `ms` that keeps the pace of the movement; calls `done` at its end. */
  timer(ms, done) {
    const animation = this.root.animate(null, { duration: ms });
    animation.onfinish = done;
    return {
      rate: (factor) => animation.updatePlaybackRate(factor),
      pause: () => animation.pause(),
      resume: () => animation.play(),
      cancel: () => {
        animation.onfinish = null;
        animation.cancel();
      },
    };
  }

  // --- the four states ----------------------------------------------------------------------------------------------

  /** Cards appear one by one, their q grows. */
  draft({ cards, clock, bracket, words }) {
    this.reveal(words);
    this.add(bracket, [{ opacity: 0 }, { opacity: 1 }], { duration: 250 });
    const gap = Math.min(380, 3040 / Math.max(1, cards.cards.length));
    cards.cards.forEach((card, i) => {
      const delay = 150 + i * gap;
      this.add(
        card.element,
        [
          { opacity: 0, transform: "translateY(.75rem)" },
          { opacity: 1, transform: "none" },
        ],
        { delay, duration: 320 },
      );
      this.add(card.q.fill, [{ transform: "scaleX(0)" }, { transform: "none" }], { delay: delay + 120, duration: 360 });
      this.grow(clock.segments[i], delay, gap);
    });
  }

  /** The bracket sweeps once over all, and every p fills at the same moment. */
  verify({ cards, clock, bracket, sweep, words }) {
    this.reveal(words);
    this.add(bracket, [{ clipPath: "inset(0 100% 0 0)" }, { clipPath: "inset(0 0 0 0)" }], {
      duration: 600,
      easing: "linear",
    });
    this.add(sweep, [{ opacity: 0 }, { opacity: 1, offset: 0.15 }, { opacity: 1, offset: 0.6 }, { opacity: 0 }], {
      duration: 900,
    });
    for (const card of cards.cards) {
      this.add(card.p.fill, [{ transform: "scaleX(0)" }, { transform: "none" }], { delay: 620, duration: 480 });
      this.add(card.p.value, [{ opacity: 0 }, { opacity: 1 }], { delay: 620, duration: 300 });
    }
    this.grow(clock.segments[cards.cards.length], 0, 700);
  }

  /** One draft: the bar grows to min(1, p/q), the tick drops at u, the verdict lands. */
  judge({ cards, step, words }) {
    this.reveal(words, 620); // not before the verdict
    const card = cards.of(step.token);
    for (const it of [card, cards.large]) {
      this.add(it.gateFill, [{ transform: "scaleX(0)" }, { transform: "none" }], { delay: 60, duration: 340 });
      this.add(
        it.tick,
        [
          { opacity: 0, transform: "translateY(-1rem)" },
          { opacity: 1, transform: "none" },
        ],
        { delay: 330, duration: 320, easing: LAND },
      );
      this.add(it.rule, [{ opacity: 0 }, { opacity: 1 }], { delay: 560, duration: 200 });
      this.add(it.first, [{ opacity: 0 }, { opacity: 1 }], { delay: 100, duration: 300 });
      this.add(
        it.verdict,
        [
          { opacity: 0, transform: "scale(1.5)" },
          { opacity: 1, transform: "none" },
        ],
        { delay: 680, duration: 260, easing: LAND },
      );
      this.add(it.mini, [{ opacity: 0.2 }, { opacity: 1 }], { delay: 60, duration: 400 });
      this.add(
        it.sign,
        [
          { opacity: 0, transform: "scale(1.8)" },
          { opacity: 1, transform: "none" },
        ],
        { delay: 560, duration: 260, easing: LAND },
      );
    }
    this.frame(card.element, 640);
  }

  /** The tail fades, the target's token appears, kept tokens fly into the text. */
  commit({ cards, round, spans, clock, caret, words, ahead }) {
    this.reveal(words, 200);
    let delay = 0;
    cards.cards.forEach((card, i) => {
      if (round.drafts[i].status === "discarded") {
        this.frame(card.element, 0, 450);
        for (const part of [card.note, card.verdict, card.sign])
          this.add(part, [{ opacity: 0 }, { opacity: 1 }], { delay: 150, duration: 350 });
        delay = 250;
      }
    });
    this.add(
      cards.added.token,
      [
        { opacity: 0, transform: "scale(.6)" },
        { opacity: 1, transform: "none" },
      ],
      { delay, duration: 380, easing: LAND },
    );
    for (const part of [cards.added.verdict, cards.added.sign, cards.added.note])
      this.add(part, [{ opacity: 0 }, { opacity: 1 }], { delay: delay + 150, duration: 300 });
    this.add(cards.added.p.fill, [{ transform: "scaleX(0)" }, { transform: "none" }], { delay: delay + 100, duration: 350 });
    this.frame(cards.added.element, delay + 100, 300);
    (clock.steps ?? []).forEach((step, i) => this.grow(step, delay + i * 120, 120));
    const kept = round.drafts.map((d, i) => (d.status === "accepted" ? cards.cards[i] : null)).filter(Boolean);
    if (round.outcome.kind !== "none") kept.push(cards.added);
    const gap = Math.min(140, 1120 / Math.max(1, kept.length));
    kept.forEach((card, i) => this.fly(card.token, spans[i], { delay: delay + 420 + i * gap, ahead }));
    this.add(caret, [{ opacity: 0 }, { opacity: 0, offset: 0.99 }, { opacity: 1 }], {
      duration: delay + 980 + kept.length * gap,
      easing: "linear",
    });
  }

  /** Explanations come with what they explain. */
  reveal(words, delay = 0) {
    for (const part of words) this.add(part, [{ opacity: 0 }, { opacity: 1 }], { delay, duration: 280 });
  }

  grow(segment, delay, duration) {
    this.add(segment, [{ transform: "scaleX(0)" }, { transform: "none" }], { delay, duration, easing: "linear" });
  }

  /** A card keeps the neutral frame until its verdict is there. */
  frame(element, delay, duration = 250) {
    const style = getComputedStyle(element);
    const root = getComputedStyle(this.root);
    const neutral = { borderColor: root.getPropertyValue("--line"), backgroundColor: root.getPropertyValue("--card") };
    this.add(element, [neutral, { borderColor: style.borderColor, backgroundColor: style.backgroundColor }], {
      delay,
      duration,
    });
  }
}
