"""Prompts for training and for evaluation: forms of ten kinds × topics. Evaluation uses other topics and other forms.

`training_prompt` and `held_out_prompts` are the only ways in; `check_disjoint` says so in code.
"""

from __future__ import annotations

import random

from specdec.errors import SettingsError

KINDS = ("explain", "list", "story", "e-mail", "summarise", "rewrite", "translate", "code", "arithmetic", "dialogue")

_NATURE = (
    "glaciers, rainbows, coral reefs, thunder, tides, caves, moss, owls, "
    "salmon, wolves, beavers, ants, mushrooms, oak trees, wildflowers, seaweed"
)
_SCIENCE = (
    "friction, batteries, lenses, acids, orbits, comets, "
    "viruses, enzymes, the nervous system, plate tectonics, entropy, lasers, semiconductors"
)
_PEOPLE = (
    "shyness, gratitude, arguments, first jobs, moving house, retirement, "
    "neighbours, public speaking, homework, lost keys, siblings, curiosity"
)
_THINGS = (
    "umbrellas, clocks, zips, paper, glass, mirrors, soap, candles, "
    "lifts, scissors, keys, lighthouses, windmills, submarines, satellites, drones"
)
_FOOD = "soup, pancakes, olives, lentils, cheese, apples, curry, noodles, lemonade, picnics, bakeries, spices"
_WORK = (
    "meetings, invoices, deadlines, surveys, contracts, "
    "training courses, spreadsheets, customer complaints, business trips, stock control"
)
_PAST = (
    "the Silk Road, Viking ships, the Roman roads, the Inca, "
    "medieval markets, the telegraph, the Industrial Revolution, ancient calendars"
)
_TECH = (
    "web browsers, search engines, graph theory, recursion, backups, "
    "version control, spam filters, cloud storage, QR codes, e-books"
)
TRAINING_TOPICS = tuple(
    topic for group in (_NATURE, _SCIENCE, _PEOPLE, _THINGS, _FOOD, _WORK, _PAST, _TECH) for topic in group.split(", ")
)

HELD_OUT_TOPICS = (
    "foxes",
    "waterfalls",
    "knitting",
    "the violin",
    "compost",
    "hot-air balloons",
    "sundials",
    "the Great Wall",
    "ferries",
    "allergies",
    "saffron",
    "weather forecasts",
    "crossword puzzles",
    "kites",
    "lost luggage",
    "night shifts",
    "hash tables",
    "prime numbers",
    "beekeepers",
    "tunnels",
    "camels",
    "origami",
    "a broken heater",
    "the metric system",
)

_MUSEUM = (
    "Summarise this in one sentence: Many people ask about {}. Some read books, others visit a museum, and most simply ask a "
    "friend. Those who ask a friend say that they remember more."
)
_FAIR = (
    "What is the main point of this text? A town held a fair about {}. Two hundred visitors came on the first day and four "
    "hundred on the second, so the town will repeat it next year."
)
_WORDY = "Make this sentence shorter: It is the case that {} are a thing which a great many people find to be interesting."
_COMMITTEE = (
    "Shorten the following to its essence. The committee met on Tuesday to talk about {}. After two hours the members agreed to "
    "spend less, to ask three experts, and to meet again in May. Nobody was against it."
)

TRAINING_FORMS: dict[str, tuple[str, ...]] = {
    "explain": (
        "Explain {} to a beginner.",
        "How do {} work, in a few sentences?",
        "What should everybody know about {}?",
        "Why do people care about {}?",
    ),
    "list": ("List six facts about {}.", "Give me four tips on {}.", "Name some examples of {} and say one thing about each."),
    "story": (
        "Write a very short story in which {} play a part.",
        "Tell a bedtime story about {}.",
        "Write a poem of eight lines about {}.",
    ),
    "e-mail": (
        "Write an e-mail to a colleague about {}.",
        "Draft a polite message that asks for information about {}.",
        "Write a short complaint about {}.",
    ),
    "summarise": (_MUSEUM, _FAIR),
    "rewrite": ("Rewrite this more formally: hey, can you tell me more about {}? thanks a lot", _WORDY),
    "translate": ("Translate into Spanish: I read a book about {}.", "How do I say this in German? We talk about {} today."),
    "code": (
        "Write a small Python class for {}.",
        "Write a Python dictionary with data about {} and print it.",
        "Write an SQL query about {}.",
    ),
    "arithmetic": (
        "What is {a} plus {b}?",
        "A box holds {a} pieces. How many pieces are in {b} boxes?",
        "Count from {a} in steps of {b}, ten times.",
    ),
    "dialogue": (
        "Write a conversation between a teacher and a pupil about {}.",
        "Two neighbours talk about {}. Write what they say.",
    ),
}

HELD_OUT_FORMS: dict[str, tuple[str, ...]] = {
    "explain": ("I have never heard of {}. Where do I begin?", "Describe {} as if I were twelve years old."),
    "list": ("Which five words come to mind for {}, and why?", "Make a checklist for somebody who is interested in {}."),
    "story": ("Begin a mystery novel with {} on the first page.", "Invent a legend about {}."),
    "e-mail": (
        "My landlord needs to hear about {}. Write the message for me.",
        "Invite a friend to an evening about {} by e-mail.",
    ),
    "summarise": (_COMMITTEE,),
    "rewrite": ("Say this more kindly: Your report on {} is late and full of mistakes.",),
    "translate": ("Put this into Italian: My sister likes {}.",),
    "code": ("Show me a short JavaScript function that has to do with {}.", "Write a Python test for a function about {}."),
    "arithmetic": (
        "{a} visitors came in the morning and {b} in the afternoon. How many came that day?",
        "Share {a} sweets between {b} children. What is left?",
    ),
    "dialogue": ("A customer and a shopkeeper discuss {}. Write their lines.",),
}


def _fill(form: str, topics: tuple[str, ...], source: random.Random) -> str:
    first, second = source.randint(12, 96), source.randint(2, 11)
    return form.format(source.choice(topics), a=first, b=second)


def training_prompt(source: random.Random) -> str:
    """One prompt; every kind is equally likely."""
    return _fill(source.choice(TRAINING_FORMS[source.choice(KINDS)]), TRAINING_TOPICS, source)


def held_out_prompts(count: int, *, seed: int = 0) -> list[tuple[str, str]]:
    """`count` pairs (kind, prompt), the kinds in turn, no prompt twice."""
    source, chosen = random.Random(seed), []
    while len(chosen) < count:
        kind = KINDS[len(chosen) % len(KINDS)]
        prompt = _fill(source.choice(HELD_OUT_FORMS[kind]), HELD_OUT_TOPICS, source)
        if (kind, prompt) not in chosen:
            chosen.append((kind, prompt))
    return chosen


def check_disjoint() -> None:
    """Training and evaluation share neither a topic nor a form; raises SettingsError with the shared ones."""
    forms = [{form for some in table.values() for form in some} for table in (TRAINING_FORMS, HELD_OUT_FORMS)]
    shared = sorted((set(TRAINING_TOPICS) & set(HELD_OUT_TOPICS)) | (forms[0] & forms[1]))
    if shared:
        raise SettingsError(f"Training and held-out prompts share {shared}: take them out of one of the two lists.")
