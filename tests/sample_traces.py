"""Made-up traces for tests, by name: invented numbers, never shown to anybody as a real run (see `trace_builder`).

trace = SAMPLES["rejected"]()      # one trace by name
all_samples()                      # {name: trace}
"""

from __future__ import annotations

import random

from trace_builder import EOS, Place, Plan, Token, distribution, make_trace, sure

from specdec.trace import PairInfo, Settings, Trace

SAMPLED = Settings(drafter="draft", draft_length=4, temperature=1.0, raw=True, seed=7)
GREEDY = Settings(drafter="draft", draft_length=4, temperature=0.0, raw=True)


def _invoice() -> Plan:
    """Two kept, the third rejected and replaced, the fourth discarded."""
    return Plan(
        places=(
            Place(" send", distribution((" send", 0.71), (" write", 0.1)), distribution((" send", 0.62), (" write", 0.2)), 0.38),
            Place(" the", distribution((" the", 0.44), (" me", 0.3)), distribution((" the", 0.55), (" me", 0.2)), 0.51),
            Place(
                " invoice",
                distribution((" report", 0.52), (" invoice", 0.16), (" file", 0.15), (" money", 0.07)),
                distribution((" invoice", 0.41), (" report", 0.18), (" file", 0.09), (" money", 0.04)),
                0.72,
            ),
            Place(" today", distribution((" today", 0.29), (" now", 0.3)), distribution((" today", 0.33), (" now", 0.1))),
        ),
        then=" report",
    )


def rejected() -> Trace:
    """Four rounds sampled at temperature 1: a rejection at place 3, all kept, a rejection at place 1, one at place 4."""
    return make_trace(
        ["Please"],
        [
            _invoice(),
            Plan(
                (
                    sure(" to", 0.81, 0.7),
                    sure(" my", 0.4, 0.52, 0.2),
                    sure(" office", 0.33, 0.31),
                    sure(" before", 0.5, 0.66, 0.6),
                ),
                " noon",
            ),
            Plan(
                (
                    Place(" and", distribution((",", 0.55), (" and", 0.06)), distribution((" and", 0.7), (",", 0.15)), 0.44),
                    sure(" call", 0.31, 0.4),
                    sure(" me", 0.8, 0.7),
                    sure(" back", 0.6, 0.6),
                ),
                ",",
            ),
            Plan(
                (
                    sure(" so", 0.6, 0.5),
                    sure(" that", 0.7, 0.81, 0.1),
                    sure(" we", 0.5, 0.4),
                    Place(
                        " will", distribution((" can", 0.6), (" will", 0.2)), distribution((" will", 0.5), (" can", 0.3)), 0.93
                    ),
                ),
                " can",
            ),
        ],
        settings=SAMPLED,
    )


def bonus() -> Trace:
    """One round in which all four drafts are kept and a bonus token follows."""
    places = (sure(" once", 0.9, 0.8), sure(" upon", 0.97, 0.95), sure(" a", 0.99, 0.99), sure(" time", 0.95, 0.97, 0.11))
    return make_trace(["It", " was"], [Plan(places, ",", distribution((",", 0.7), (" there", 0.2)))], settings=SAMPLED)


def greedy() -> Trace:
    """Greedy: a first round that loses its third draft, a second that keeps all. No u anywhere."""
    return make_trace(
        ["Please"],
        [_invoice(), Plan((sure(" to", 0.81, 0.7), sure(" my", 0.4, 0.5), sure(" office", 0.46, 0.31)), " today")],
        settings=GREEDY,
    )


def eight_drafts() -> Trace:
    """Eight drafts a round: rejected at place 6 in the first round, all kept in the second."""
    words = " The quick brown fox jumps over the lazy dog and runs away into the dark".split(" ")[1:]
    tokens = [" " + w for w in words]
    first = [sure(t, 0.6 - 0.03 * i, 0.5 + 0.01 * i, 0.2) for i, t in enumerate(tokens[:8])]
    first[5] = Place(" above", distribution((" over", 0.8), (" above", 0.1)), distribution((" above", 0.6), (" over", 0.3)), 0.66)
    second = tuple(sure(t, 0.7, 0.65, 0.4) for t in tokens[6:14])
    return make_trace(
        ["Tell", " me", ":"], [Plan(tuple(first), " over"), Plan(second, " dark")], settings=SAMPLED.replace(draft_length=8)
    )


def many_drafts() -> Trace:
    """The longest draft there can be, 32 tokens, rejected at place 30."""
    places = [sure(f" {chr(97 + i % 26)}{i}", 0.8, 0.75, 0.5) for i in range(32)]
    places[29] = Place(
        " lost", distribution((" found", 0.7), (" lost", 0.02)), distribution((" lost", 0.6), (" found", 0.3)), 0.9
    )
    return make_trace(["Count", ":"], [Plan(tuple(places), " found")], settings=SAMPLED.replace(draft_length=32))


def ends_in_drafts() -> Trace:
    """The end-of-text token is the second draft and is kept: two drafts behind it are discarded and the target adds nothing."""
    places = (sure(".", 0.9, 0.8), sure(EOS, 0.95, 0.7), sure("\n", 0.5, 0.6), sure(" Then", 0.2, 0.3))
    return make_trace(["That", " is", " all"], [Plan(places, None)], settings=SAMPLED, finish_reason="eos")


def emoji() -> Trace:
    """One emoji in two halves over two rounds, a Chinese character in three parts, and line breaks."""
    a, b = "😀".encode()[:2], "😀".encode()[2:]
    one, two, three = ("漢".encode()[i : i + 1] for i in range(3))
    return make_trace(
        ["Smile", ":"],
        [
            Plan((sure(" ", 0.8, 0.7),), a),
            Plan((sure(b, 0.9, 0.8), sure("\n\n", 0.7, 0.6), sure(one, 0.5, 0.4)), two),
            Plan((sure(three, 0.9, 0.9), sure("\t", 0.4, 0.5), sure("    ", 0.4, 0.3)), "é"),
        ],
        settings=SAMPLED.replace(draft_length=3),
    )


def hostile() -> Trace:
    """Tokens that are markup, very long, written right to left, or look like the stage's own marks."""
    bad = '<img src=x onerror="window.hacked=1">'
    return make_trace(
        ["<b>hi</b>", "<script>window.hacked=1</script>"],
        [
            Plan(
                (sure(bad, 0.6, 0.5), sure("</span>", 0.4, 0.5, 0.2), sure("x" * 60, 0.5, 0.4), sure(" שלום", 0.5, 0.4)), "&lt;"
            ),
            Plan(
                (
                    sure("${1}", 0.5, 0.4),
                    Place("␣", distribution(("\u202eabc", 0.7), ("␣", 0.01)), distribution(("␣", 0.6), (bad, 0.3)), 0.9),
                    sure("\u0000", 0.2, 0.3),
                    sure("", 0.2, 0.3),
                ),
                "\u202eabc",
            ),
        ],
        settings=SAMPLED,
    )


def lookup() -> Trace:
    """Prompt look-up (greedy): nothing found, then three tokens copied (one-hot q), then nothing again."""

    def copied(x: Token, p: float) -> Place:
        return Place(x, distribution((x, p)), {x: 1.0})

    return make_trace(
        ["to", " be", " or", " not"],
        [Plan((), " to"), Plan((copied(" be", 0.9), copied(" or", 0.6), copied(" not", 0.7)), " to"), Plan((), ".")],
        settings=GREEDY.replace(drafter="lookup"),
        pair=PairInfo(
            name="made-up pair (test data)",
            target="made-up target",
            draft=None,
            target_parameters=1000,
            draft_parameters=None,
            dtype="float32",
            vocabulary=4096,
            context=2048,
        ),
    )


def one_draft() -> Trace:
    """One draft a round: kept, then rejected."""
    lost = Place(" dogs", distribution((" cats", 0.7), (" dogs", 0.1)), distribution((" dogs", 0.8), (" cats", 0.1)), 0.5)
    return make_trace(
        ["I"], [Plan((sure(" like", 0.8, 0.6),), " small"), Plan((lost,), " cats")], settings=SAMPLED.replace(draft_length=1)
    )


def plain() -> Trace:
    """Plain decoding: rounds without drafts, one token each."""
    words = (" send", " the", " report", " today", ".")
    plans = [Plan((), w, distribution((w, 0.5 + i / 10)), verify_seconds=0.019) for i, w in enumerate(words)]
    return make_trace(["Please"], plans, settings=SAMPLED.replace(draft_length=0), method="plain")


STORY = (
    " a small robot learned to read|. It began with the signs on the street|, then the labels on old boxes"
    "|, and at last the letters that nobody had opened|. Every evening it sat by the window and read one letter aloud"
    "|. The people below stopped to listen|, and after a while they brought letters of their own|."
)


def story(rounds: int = 24, seed: int = 8) -> Trace:
    """A long run: about 60 tokens in up to `rounds` rounds of four drafts, kept and rejected as a seeded generator has it."""
    rng = random.Random(seed)
    tokens: list[str] = []
    for part in STORY.split("|"):
        tokens += [part[0]] * (part[0] in ",.") + [" " + w for w in part.lstrip(",.").split()]
    plans, at = [], 0
    while at < len(tokens) - 1 and len(plans) < rounds:
        places, kept = [], 0
        for i in range(min(4, len(tokens) - 1 - at)):
            right, p, q = tokens[at + i], rng.uniform(0.25, 0.95), rng.uniform(0.2, 0.95)
            if rng.random() < 0.8:
                places.append(sure(right, p, q, rng.uniform(0, min(1.0, p / q) * 0.98)))
                kept += 1
                continue
            wrong, low, high = (
                rng.choice([" big", " quiet", " slowly", " never", " door"]),
                rng.uniform(0.01, 0.1),
                rng.uniform(0.4, 0.8),
            )
            p_here, q_here = distribution((right, p * 0.9), (wrong, low)), distribution((wrong, high), (right, p * 0.1))
            places.append(Place(wrong, p_here, q_here, rng.uniform(low / high + 0.01, 1)))
            places += [
                sure(tokens[at + j], rng.uniform(0.1, 0.9), rng.uniform(0.1, 0.9))
                for j in range(i + 1, min(4, len(tokens) - 1 - at))
            ]
            break
        plans.append(
            Plan(
                tuple(places), tokens[at + kept], draft_seconds=rng.uniform(0.0015, 0.003), verify_seconds=rng.uniform(0.02, 0.03)
            )
        )
        at += kept + 1
    return make_trace(["Once", " upon", " a", " time", ","], plans, settings=SAMPLED)


def surprising() -> Trace:
    """Numbers that are hard to print: tiny p and q, p/q and u equal to two digits, certainty."""
    return make_trace(
        ["Say"],
        [
            Plan(
                (
                    sure(" yes", 0.00031, 0.0021, 0.1),
                    sure(" sure", 0.8, 1.0, 0.7999),
                    sure(" ok", 0.99996, 0.99999, 0.2),
                    Place(
                        " no",
                        distribution((" maybe", 0.9), (" no", 0.000004)),
                        distribution((" no", 0.6), (" maybe", 0.2)),
                        0.00001,
                    ),
                ),
                " maybe",
            )
        ],
        settings=SAMPLED,
        plain_step_seconds=None,
    )


SAMPLES = {
    f.__name__: f
    for f in (
        rejected,
        bonus,
        greedy,
        eight_drafts,
        many_drafts,
        ends_in_drafts,
        emoji,
        hostile,
        lookup,
        one_draft,
        plain,
        story,
        surprising,
    )
}


def all_samples() -> dict[str, Trace]:
    return {name: make() for name, make in SAMPLES.items()}
