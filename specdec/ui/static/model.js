// What there is to see at each moment of a run: pure functions over the rounds of a trace, no document, no clock.
// A "step" is one state of the animation and one stop of the scrubber. Names are those of specdec.trace.

export const PHASES = ["draft", "verify", "judge", "commit"];

/**
 * All steps of a run, in order. Rounds are only ever appended, so the number of a step never changes.
 * draft -> verify -> one judge step for each judged draft -> commit; a plain round has nothing to draft or to judge,
 * a round whose drafter found nothing has an (empty) draft step.
 * @returns {{round: number, phase: string, token: number|null}[]}  token: the draft that a judge step judges
 */
export function stepsOf(rounds, method) {
  const steps = [];
  rounds.forEach((round, number) => {
    if (method !== "plain") steps.push({ round: number, phase: "draft", token: null });
    steps.push({ round: number, phase: "verify", token: null });
    for (let i = 0; i < judgedOf(round); i++) steps.push({ round: number, phase: "judge", token: i });
    steps.push({ round: number, phase: "commit", token: null });
  });
  return steps;
}

export const judgedOf = (round) => round.drafts.filter((d) => d.status !== "discarded").length;
export const acceptedOf = (round) => round.drafts.filter((d) => d.status === "accepted").length;

/** Which things a step shows. verdicts: how many drafts, from the left, show their verdict. */
export function seenAt(step, round) {
  const order = PHASES.indexOf(step.phase);
  const verdicts = step.phase === "judge" ? step.token + 1 : step.phase === "commit" ? judgedOf(round) : 0;
  return { p: order >= 1, verdicts, committed: step.phase === "commit" };
}

/** How draft i looks at a step: "drafted" | "scored" | "accepted" | "rejected" | "discarded". */
export function draftLook(step, round, i) {
  const seen = seenAt(step, round);
  const status = round.drafts[i].status;
  if (i < seen.verdicts) return status;
  if (seen.committed) return "discarded";
  return seen.p ? "scored" : "drafted";
}

/** The token that a step speaks of: a draft's number, "outcome", or null for the round as a whole. */
export function speaksOf(step, round, selected) {
  if (selected && selected.round === step.round) return selected.token;
  if (step.phase === "judge") return step.token;
  if (step.phase === "commit") return round.outcome.kind === "none" ? Math.max(0, judgedOf(round) - 1) : "outcome";
  return null;
}

/** Number of the first step of a round, or of one of its states (the nearest that the round has). */
export function stepOf(steps, round, phase = null) {
  const first = steps.findIndex((s) => s.round === round);
  if (first < 0) return Math.max(0, steps.length - 1);
  if (phase === null) return first;
  const found = steps.findIndex((s) => s.round === round && PHASES.indexOf(s.phase) >= PHASES.indexOf(phase));
  return found < 0 ? first : found;
}

/** Number of the step that a card of the lesson names: { round, phase, token }; the nearest that the round has. */
export function placeOf(steps, { round, phase, token = null }) {
  const exact = steps.findIndex((s) => s.round === round && s.phase === phase && (token === null || s.token === token));
  return exact < 0 ? stepOf(steps, round, phase) : exact;
}

/** Where a token of the committed text came from: "accepted" | "replacement" | "bonus" | "own" (no draft in that round). */
export function originOf(round, token) {
  if (token !== "outcome") return "accepted";
  if (round.outcome.kind === "replacement") return "replacement";
  return round.drafts.length ? "bonus" : "own";
}

/** The tokens that a round commits: [{round, token, origin, text, bytes}]. */
export function committedBy(round, number) {
  const kept = [];
  round.drafts.forEach((d, i) => {
    if (d.status === "accepted")
      kept.push({ round: number, token: i, origin: "accepted", text: d.text, bytes: d.bytes ?? null });
  });
  const o = round.outcome;
  if (o.kind !== "none") {
    kept.push({ round: number, token: "outcome", origin: originOf(round, "outcome"), text: o.text, bytes: o.bytes ?? null });
  }
  return kept;
}

/**
 * The committed text, token by token, exact at byte level: a character that is spread over several tokens belongs to the token
 * that completes it. Feed it tokens in order.
 */
export class TextJoiner {
  constructor() {
    this.decoder = new TextDecoder("utf-8", { ignoreBOM: true });
    this.encoder = new TextEncoder();
    this.open = []; // bytes (hex) of a character that is not complete yet
  }

  /** @returns {{text: string, open: string}} what the token adds to the text, and the bytes ("F0 9F") that still wait for more */
  add({ text, bytes }) {
    const raw = bytes == null ? this.encoder.encode(text) : fromHex(bytes);
    const added = this.decoder.decode(raw, { stream: true });
    if (bytes == null) this.open = [];
    else this.open = waitingBytes(added ? [...raw] : [...this.open, ...raw]);
    return { text: added, open: this.open.map((b) => b.toString(16).toUpperCase().padStart(2, "0")).join(" ") };
  }
}

const fromHex = (hex) => Uint8Array.from(hex.match(/../g) ?? [], (pair) => parseInt(pair, 16));

/** The bytes at the end that begin a character without completing it. */
function waitingBytes(bytes) {
  for (let back = 1; back <= Math.min(3, bytes.length); back++) {
    const byte = bytes[bytes.length - back];
    if (byte >= 0xc0) {
      const needs = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2;
      return needs > back ? bytes.slice(-back) : [];
    }
    if (byte < 0x80) return [];
  }
  return [];
}

/**
 * How much faster than the chosen speed a live run is shown while following it: at leisure while nothing waits, and as fast as
 * its rounds come as soon as two or three wait. @param backlog rounds that are there but not begun yet
 */
export const catchUp = (backlog) => Math.min(24, Math.max(1, 1 + 4 * (backlog - 1)));

/** More rounds than this behind, and following skips to the newest ones. */
export const FAR_BEHIND = 12;

/** Reading time of a step at speed 1, ms, after its own movement. */
export const HOLD = { draft: 500, verify: 700, judge: 650, commit: 900 };

/** How long the movement of a step takes at speed 1, ms. */
export function moveTime(step, round) {
  if (step.phase === "draft") return 300 + 380 * Math.min(round.drafts.length, 8);
  if (step.phase === "verify") return 1150;
  if (step.phase === "judge") return 1000;
  return 700 + 140 * Math.min(8, acceptedOf(round) + 1) + 600;
}

/** Segments of the two clocks, in seconds. plain: as many plain steps as the round committed tokens, null when not measured. */
export function lanesOf(round, number, plainStep) {
  const tokens = committedBy(round, number).length;
  const parts = [
    ...round.seconds.draft.map((s) => ({ kind: "draft", seconds: s })),
    { kind: "verify", seconds: round.seconds.verify },
    { kind: "judge", seconds: round.seconds.judge },
  ];
  const total = parts.reduce((sum, part) => sum + part.seconds, 0);
  const plain = plainStep == null ? null : { steps: tokens, step: plainStep, total: tokens * plainStep };
  return { tokens, parts, total, plain, scale: Math.max(total, plain?.total ?? 0) || 1 };
}
