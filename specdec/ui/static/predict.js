// Predict first: what is asked before a verdict shows, and how many answers were right. Pure, no document. The count stays in
// this browser: nothing of it is stored or sent.

const VERDICTS = ["accept", "reject"];
const MOST = 4; // tokens to choose a replacement from

/**
 * What is asked before `step`: nothing, the verdict, or the verdict and then the replacement.
 * @returns {{key: string, kind: "verdict"|"replacement", token: number, options: string[], answer: number}[]}
 *   options: names of texts for a verdict, tokens for a replacement; answer: number of the right one
 */
export function questionsBefore(view, step) {
  if (step?.phase !== "judge") return [];
  const round = view.rounds[step.round];
  const draft = round.drafts[step.token];
  const kept = draft.status === "accepted";
  const key = `${step.round}.${step.token}`;
  const verdict = { key: `${key}.verdict`, kind: "verdict", token: step.token, options: VERDICTS, answer: kept ? 0 : 1 };
  if (kept || round.outcome.kind !== "replacement") return [verdict];
  const rows = choices(round, draft);
  if (rows.length < 2) return [verdict];
  const answer = rows.findIndex(([id]) => id === round.outcome.id);
  const options = rows.map(([, text]) => text);
  return [verdict, { key: `${key}.replacement`, kind: "replacement", token: step.token, options, answer }];
}

/**
 * Rows [id, text, ...] to choose the replacement from: the token itself and the likeliest others that were recorded, in an order
 * that is the same every time. The token that fell is among them only where too few others are known.
 */
export function choices(round, fallen) {
  const { id, rows } = round.outcome;
  const others = rows.filter((row) => row[0] !== id);
  const ranked = [...others.filter((row) => row[0] !== fallen.id), ...others.filter((row) => row[0] === fallen.id)];
  const chosen = [...rows.filter((row) => row[0] === id), ...ranked].slice(0, MOST);
  return chosen
    .map((row) => [shuffled(row[0], round.start), row])
    .sort(([a], [b]) => a - b)
    .map(([, row]) => row);
}

/** A number without any pattern that the eye could learn: FNV-1a over the token and its place. */
function shuffled(id, place) {
  let hash = 0x811c9dc5;
  for (const part of [id, place]) {
    for (let shift = 0; shift < 32; shift += 8) hash = Math.imul(hash ^ ((part >>> shift) & 255), 0x01000193) >>> 0;
  }
  return hash;
}

/** Put values into a text: fill("{right} of {total}", { right: 4, total: 6 }). */
export const fill = (text, values) => text.replace(/\{(\w+)\}/g, (whole, name) => String(values[name] ?? whole));

/** Answers of one run: each question counts once, and one that was only shown does not count. */
export class Score {
  constructor() {
    this.answers = new Map(); // key of a question -> right, or null
  }

  add(key, right) {
    if (!this.answers.has(key)) this.answers.set(key, right);
  }

  has(key) {
    return this.answers.has(key);
  }

  get counts() {
    const counted = [...this.answers.values()].filter((right) => right !== null);
    return { right: counted.filter(Boolean).length, total: counted.length };
  }
}
