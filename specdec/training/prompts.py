"""Prompts for training and for evaluation: forms of ten kinds × topics. Evaluation uses other topics and other forms.

`training_prompt`, `quoting_prompt` and `held_out_prompts` are the only ways in; `check_disjoint` says so in code, and `held_out`
judges questions that the target asks itself.
"""

from __future__ import annotations

import random
import re
from functools import cache

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
_PLACES = (
    "airports, lakes, Venice, Iceland, the Alps, New York, the Sahara, car parks, bus stops, hotels, zoos, "
    "playgrounds, farms, laundrettes, harbours, castles, gardens, post offices, swimming pools, railway stations"
)
_ARTS = (
    "guitars, pianos, choirs, drums, cartoons, sculpture, opera, circuses, folk songs, photography, detective novels, "
    "fairy tales, diaries, comics, puppets, pottery, tattoos, street art, ballet, science fiction"
)
_BODY = (
    "teeth, eyes, backache, stress, vitamins, first aid, running shoes, breakfast, posture, hiccups, sunburn, glasses, "
    "hearing, blood tests"
)
_HOME = (
    "carpets, leaking taps, house plants, cats, dogs, goldfish, fridges, ladders, paint, pillows, "
    "gardens in winter, moving boxes, washing machines, a new sofa, birthday presents, noisy neighbours"
)
_PLAY = (
    "chess, football, cycling, skiing, card games, dice, jigsaw puzzles, sailing, table tennis, hiking, board games, "
    "treasure hunts, yoga, marathons"
)
_MONEY = (
    "pocket money, rent, insurance, pensions, coins, prices, taxes, tips in restaurants, online shops, auctions, loans, "
    "charity shops, bank cards"
)
_MATHS = (
    "fractions, triangles, probability, averages, percentages, matrices, circles, logic, sets, statistics, sorting, binary "
    "numbers, maps, units, chance"
)
TRAINING_TOPICS = tuple(
    dict.fromkeys(
        topic
        for group in (
            *(_NATURE, _SCIENCE, _PEOPLE, _THINGS, _FOOD, _WORK, _PAST, _TECH),
            *(_PLACES, _ARTS, _BODY, _HOME, _PLAY, _MONEY, _MATHS),
        )
        for topic in group.split(", ")
    )
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
        "I do not understand {}. Can you help me?",
        "Give me an overview of {}.",
        "What is the most surprising thing about {}?",
        "Who invented or discovered {}, and when?",
        "Explain {} with an everyday comparison.",
        "What do experts disagree about when it comes to {}?",
        "In two paragraphs, introduce {} to the readers of a newspaper.",
        "What are the causes and effects of {}?",
    ),
    "list": (
        "List six facts about {}.",
        "Give me four tips on {}.",
        "Name some examples of {} and say one thing about each.",
        "What are the pros and cons of {}?",
        "Give me ten titles for a talk on {}.",
        "Write step by step instructions for something to do with {}.",
        "Which books, films or songs are about {}?",
        "List three questions and answers about {}.",
        "What do I need to buy if I want to start with {}?",
        "Rank five things about {} from best to worst.",
    ),
    "story": (
        "Write a very short story in which {} play a part.",
        "Tell a bedtime story about {}.",
        "Write a poem of eight lines about {}.",
        "Write the first paragraph of a romance that starts with {}.",
        "Tell me a joke about {}.",
        "Write a haiku about {}.",
        "Write a diary entry of somebody who dreams of {}.",
        "Write a fable about {} with a moral at the end.",
        "Once upon a time there was a girl who knew everything about {}. Go on.",
        "Describe a film scene with {} in it.",
    ),
    "e-mail": (
        "Write an e-mail to a colleague about {}.",
        "Draft a polite message that asks for information about {}.",
        "Write a short complaint about {}.",
        "Write a thank-you note that mentions {}.",
        "Write a letter of application to a company that deals with {}.",
        "Answer this e-mail: Dear team, what is our plan for {}? Best wishes, Anna",
        "Tell my boss in a few lines that the report on {} will be late.",
        "Write a newsletter about {} for parents.",
        "Write a birthday card for a friend who loves {}.",
        "Write a reminder to all members of the club for {}.",
    ),
    "summarise": (
        _MUSEUM,
        _FAIR,
        (
            "Give me the key points of this: Last year a study on {} asked nine hundred people. Most of them were between "
            "thirty and forty. Sixty per cent had a good opinion, a quarter had none, and the rest did not answer."
        ),
        (
            "Write a headline for this news: The city council has decided to spend two million on {}. The mayor called it "
            "a good day. Some citizens would rather have new roads."
        ),
        (
            "TL;DR: My brother has collected everything about {} since he was six. His room is full. Our parents want him "
            "to stop, but he says that it will be worth a lot one day."
        ),
        (
            "Sum up the following in ten words: {} can be difficult at first. With patience, a good teacher and some "
            "practice every day, most people learn quickly and enjoy it."
        ),
        (
            "What does the author think? Text: I used to believe that {} did not matter. Then I spent a summer with my "
            "grandmother, who taught me to look closely. I have never been bored since."
        ),
        (
            "Condense this paragraph: The workshop on {} takes place on Friday at nine in room twelve. Please bring a pen, "
            "some paper and lunch. It ends at four. Those who cannot come should tell Maria by Wednesday."
        ),
    ),
    "rewrite": (
        "Rewrite this more formally: hey, can you tell me more about {}? thanks a lot",
        _WORDY,
        "Correct the mistakes: she dont like {} becaus it are to expensive.",
        "Put this into the past tense: We talk about {} and everybody listens.",
        "Turn this into a question: {} are useful for everyone.",
        "Make this sound more exciting: There is an exhibition on {} in town.",
        "Say the same in simpler words: The significance of {} can hardly be overestimated in contemporary society.",
        "Rewrite in the third person: I have always wanted to know more about {}, and I asked my aunt.",
        "Change the tone of this sentence to be friendlier: Do not ask me about {} again.",
        "Make two sentences out of this one: Although {} are often mentioned in the news, hardly anybody knows how they began.",
    ),
    "translate": (
        "Translate into Spanish: I read a book about {}.",
        "How do I say this in German? We talk about {} today.",
        "Translate into French: Where can I learn more about {}?",
        "What is the Portuguese word for {}?",
        "Translate this sentence to Dutch: My friends and I are fond of {}.",
        "Say in Spanish: The children ask many questions about {}.",
        "Translate to Latin: {}.",
        "Give me the German, French and Spanish words for {}.",
    ),
    "code": (
        "Write a small Python class for {}.",
        "Write a Python dictionary with data about {} and print it.",
        "Write an SQL query about {}.",
        "Write a Python function that counts {} in a list.",
        "Write an HTML page with a heading and a list about {}.",
        "Write a JSON object that describes {}.",
        "Fix this Python code: for i in range(10) print({a} * i)",
        "What does this code print? x = {a}; y = {b}; print(x % y)",
        "Write a bash script that renames files about {}.",
        "Write a C program that reads {b} numbers and prints their sum.",
        "Write a regular expression that finds {} in a text and explain it.",
        "How do I read a CSV file about {} with pandas?",
    ),
    "arithmetic": (
        "What is {a} plus {b}?",
        "A box holds {a} pieces. How many pieces are in {b} boxes?",
        "Count from {a} in steps of {b}, ten times.",
        "What is {a} minus {b}? Explain.",
        "Is {a} a multiple of {b}?",
        "Multiply {a} by {b}.",
        "A train travels {a} kilometres in one hour. How far does it go in {b} hours?",
        "Anna has {a} coins and loses {b}. How many does she have?",
        "What is {b} per cent of {a}0?",
        "Solve for x: x + {b} = {a}.",
        "What is the area of a room that is {a} metres long and {b} metres wide?",
    ),
    "dialogue": (
        "Write a conversation between a teacher and a pupil about {}.",
        "Two neighbours talk about {}. Write what they say.",
        "Write an interview with an expert on {}.",
        "A doctor and a patient talk about {}. Write the dialogue.",
        "Write a phone call between a mother and her son about {}.",
        "Write a scene in which two robots argue about {}.",
        "Write a chat between a customer and a support agent about {}.",
        "Imagine that {} could speak. What would they say to us?",
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


QUOTING_FORMS = (
    "Summarise this text: {}",
    "Give me this in one short sentence: {}",
    "What is this about?\n\n{}",
    "Rewrite this so that a child understands it: {}",
    "Rewrite the following in a formal tone.\n\n{}",
    "Make this shorter: {}",
    "Turn this into a list: {}",
    "Write a title for this text: {}",
    "Translate into French: {}",
    "Translate into Italian and German: {}",
    "Correct all mistakes: {}",
    "Which three words matter most in this? {}",
    "Ask me two questions about this text: {}",
    "Repeat this word for word: {}",
    "Go on with this text: {}",
    "Make this text friendlier: {}",
    "Is this true? {}",
    "Explain this to me: {}",
    "{} What do you mean by that?",
    "{}\n\nSay that in other words.",
)
"""Around something that the target wrote earlier: what a list of topics cannot give, a text of some length that is new every time."""


def _fill(form: str, topics: tuple[str, ...], source: random.Random) -> str:
    first, second = source.randint(12, 96), source.randint(2, 11)
    return form.format(source.choice(topics), a=first, b=second)


def training_prompt(source: random.Random) -> str:
    """One prompt; every kind is equally likely."""
    return _fill(source.choice(TRAINING_FORMS[source.choice(KINDS)]), TRAINING_TOPICS, source)


def quoting_prompt(source: random.Random, text: str) -> str:
    """A prompt around `text`."""
    return source.choice(QUOTING_FORMS).replace("{}", text.strip())


def held_out(question: str) -> bool:
    """Is this, written by nobody on our lists, about a held-out topic or in a held-out form? Then no training sees it."""
    return _held_out_words().search(question.lower()) is not None


@cache
def _held_out_words() -> re.Pattern[str]:
    """The beginnings of held-out topics, and of each held-out form the longest piece between its blanks; all in small letters."""
    stems = [re.sub(r"(?<=x)es$|ies$|s$", "", topic.lower().removeprefix("the ").removeprefix("a ")) for topic in HELD_OUT_TOPICS]
    pieces = [max(re.split(r"\{\w*\}", form), key=len).strip().lower() for forms in HELD_OUT_FORMS.values() for form in forms]
    return re.compile("|".join([rf"\b{re.escape(stem)}" for stem in stems] + [re.escape(piece) for piece in pieces]))


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
    forms[0] |= set(QUOTING_FORMS)
    shared = sorted((set(TRAINING_TOPICS) & set(HELD_OUT_TOPICS)) | (forms[0] & forms[1]))
    if shared:
        raise SettingsError(f"Training and held-out prompts share {shared}: take them out of one of the two lists.")
