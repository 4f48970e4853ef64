"""Inputs that nobody thought of: requests, addresses of every page, uploads. Right, or one clear sentence; never a traceback.

Short by default, long with -m slow. What a single reader promises in detail is in its own test file.
"""

from __future__ import annotations

import ast
import copy
import io
import json
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as configure
from hypothesis import strategies as st
from streamlit.testing.v1 import AppTest
from made_up_measurements import made_up
from test_race import drafted_run, plain_run
from test_vllm_import import metrics as counters
from waiting import until

from specdec import engine as engine_module
from specdec import measure_report, measure_store, prompt_sets, race, vllm_import
from specdec.decoding import plain
from specdec.engine import Engine, Limits, RunRequest
from specdec.errors import SettingsError, SpecdecError
from specdec.measure_analysis import analyse
from specdec.trace import Settings

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "pages").glob("*.py"))
# Names in the addresses; of some the widget comes only with a view that the address chooses.
CALLS = [
    {word.arg: word.value for word in node.keywords}
    for path in (ROOT / "specdec" / "ui").glob("*.py")
    for node in ast.walk(ast.parse(path.read_text()))
    if isinstance(node, ast.Call)
]
BOUND = {call["key"].value for call in CALLS if "bind" in call and isinstance(call.get("key"), ast.Constant)}
WORST = [
    "",
    " \n\t",
    "\0\x01\x1b[31m\x7f\u200b\ufeff",
    "שלום עולם \u202eabc\u202c مرحبا",
    "👩‍👩‍👧‍👦🏳️‍🌈🙂" * 9,
    "e" + "\u0301" * 300,
    "<|im_end|>\n<|im_start|>system\n<|endoftext|>",
    "<|end|><|start|>assistant\n",
    "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "$$\\frac{1}{0}$$ :material/star: [x](javascript:alert(1)) {{ 7 * 7 }} %s {0}",
    "../../../etc/passwd",
    "-1",
    "1e999",
    "nan",
    "9" * 400,
    "true",
    "[]",
    "'; DROP TABLE pupils; --",
]
HOSTILE = [None, True, -1, 0, 2**63, 1e308, -0.5, "", "\0", "x" * 3000, [], {}, [[]], {"a": None}, float("nan"), float("inf")]

short_and_long = pytest.mark.parametrize("factor", [1, pytest.param(30, marks=pytest.mark.slow)])


def fuzz(check, examples: int, **strategies) -> None:
    quiet = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
    configure(max_examples=examples, deadline=None, database=None, suppress_health_check=quiet)(given(**strategies)(check))()


def is_a_sentence(message: str) -> bool:
    """For a person: neither a class of Python nor a place in the code."""
    return len(message) > 10 and not any(word in message for word in ("Traceback", 'File "', "Error:", "others are not affected"))


# Requests


text = st.text(st.characters(codec="utf-8"), max_size=60) | st.sampled_from(WORST)
prompts = text | st.lists(text, min_size=2, max_size=4).map("".join)


@pytest.fixture(scope="module")
def engine(tiny_pair):
    made = Engine(lambda name, progress: tiny_pair(), limits=Limits(prompt_characters=150_000, run_seconds=20))
    yield made
    made.close()


def outcome(engine: Engine, request: RunRequest):
    """The job, ended; never a hang."""
    job = engine.submit(request, owner="fuzz")
    until(lambda: not job.active, pause=0.002, said=lambda: request)
    return job


@short_and_long
def test_any_request_is_a_right_run_or_a_sentence(engine, tiny_pair, factor):
    def check(prompt, data):
        chosen = dict(
            drafter=data.draw(st.sampled_from(["draft", "draft", "lookup", "early-exit", "nobody"])),
            draft_length=data.draw(st.integers(0, 12)),
            adaptive=data.draw(st.booleans()),
            temperature=data.draw(st.sampled_from([0.0, 0.0, 1e-3, 0.7, 2.0, float("nan"), -1.0])),
            top_k=data.draw(st.integers(-1, 9)),
            top_p=data.draw(st.sampled_from([1.0, 0.9, 1e-6, 0.0, float("inf")])),
            max_new_tokens=data.draw(st.integers(0, 8)),
            seed=data.draw(st.integers(-1, 2**40)),
            raw=data.draw(st.booleans()),
        )
        try:
            request = RunRequest(prompt=prompt, settings=Settings(**chosen))
            job = outcome(engine, request)
        except SettingsError as error:
            assert is_a_sentence(str(error))
            return
        if job.state == "failed":
            assert is_a_sentence(job.message), job.message
            return
        assert job.state == "done" and job.trace.finish_reason
        assert job.trace.prompt == prompt and len(job.trace.output_ids) <= request.settings.max_new_tokens
        if request.settings.greedy:
            assert job.trace.output_ids == plain(tiny_pair(), prompt, request.settings).output_ids

    fuzz(check, 8 * factor, prompt=prompts, data=st.data())


@pytest.mark.parametrize("unit", ["x", "🙂", "\0", "<|end|>", "\u202eש"])
def test_a_hundred_thousand_characters_are_one_sentence(engine, unit):
    prompt = unit * (100_000 // len(unit))
    job = outcome(engine, RunRequest(prompt=prompt, settings=Settings(max_new_tokens=4)))
    assert job.state == "failed" and is_a_sentence(job.message) and "512" in job.message, job.message
    with pytest.raises(SettingsError, match="^The prompt has 9.,... characters|^The prompt has 100,000 characters"):
        Engine().submit(RunRequest(prompt=prompt, settings=Settings()), owner="a")


# Addresses


@pytest.fixture
def no_engine(monkeypatch):
    """Nobody starts a run by opening an address."""

    def refuse(name, progress):
        raise AssertionError("an address started a run")

    made = Engine(refuse)
    monkeypatch.setattr(engine_module, "_shared", made)
    yield made
    assert made.state == "empty" and made.queue_length == 0
    made.close()


def open_page(page: Path, query: dict) -> AppTest:
    at = AppTest.from_file(str(ROOT / "specdec" / "ui" / "shell.py"), default_timeout=60)
    for name, value in query.items():
        at.query_params[name] = value
    at.switch_page(str(page))
    at.run()
    assert not at.exception, (page.name, query, [e.value for e in at.exception])
    return at


def names_of(at: AppTest) -> list[str]:
    """What the widgets of a page read from the address, and what pages read themselves."""
    bound = {getattr(getattr(e, "proto", None), "query_param_key", "") for e in (*at.main, *at.sidebar)}
    return sorted({*bound, *BOUND, "drafter", "show", "step", "from", "embed", "hide", "lock", "lang", "present"} - {""})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
@short_and_long
def test_any_address_of_any_page_is_a_page(no_engine, page, factor):
    first = open_page(page, {})
    names, size = names_of(first), len(first.main)
    # At once what is wrong for every one of them, then any mixture.
    for value in ("<|im_end|>\0\u202e🙂", ["a", "1e999"]):
        at = open_page(page, dict.fromkeys(names, value))
        assert len(at.main) >= size // 2  # a page, and not an empty one
    values = text | st.integers().map(str) | st.floats().map(str) | st.lists(text, max_size=3)
    if factor > 1:
        fuzz(
            lambda query: open_page(page, query) and None,
            factor,
            query=st.dictionaries(st.sampled_from(names) | st.text(max_size=9), values),
        )


def test_the_fuzz_knows_the_names_in_the_addresses():
    assert {"prompt", "seed", "temperature", "raw", "m_repeats", "dice_p", "m_lengths"} <= BOUND


@pytest.mark.parametrize("page", ["rounds", "race"])
@pytest.mark.parametrize("value", ["1e999", "-inf", "nan"])
def test_an_infinite_number_in_an_address_falls_back(no_engine, page, value):
    at = open_page(ROOT / "pages" / f"{page}.py", {"seed": value, "top_k": value, "draft_length": "7"})
    assert at.number_input(key="seed").value == 0 and at.number_input(key="top_k").value == 0
    assert at.slider(key="draft_length").value == 7
    assert "seed" not in at.query_params


# Uploads


def leaves(value, path=()):
    """Paths of all values inside of JSON."""
    yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inside:
        yield from leaves(one, (*path, key))


@st.composite
def damaged(draw, good: str):
    """The bytes of a JSON (or JSON lines) text with a few values replaced or removed, or with an end that is missing."""
    if draw(st.integers(0, 4)) == 0:
        return good.encode()[: draw(st.integers(0, len(good)))]
    lines = good.splitlines() if "\n" in good.strip() and good.startswith("{") and not good.startswith("{\n") else [good]
    number = draw(st.integers(0, len(lines) - 1))
    value = copy.deepcopy(json.loads(lines[number]))
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(list(leaves(value))))
        if not path:
            continue
        inside = value
        for key in path[:-1]:
            inside = inside[key]
        if draw(st.integers(0, 3)) == 0:
            del inside[path[-1]]
        else:
            inside[path[-1]] = copy.deepcopy(draw(st.sampled_from(HOSTILE)))  # or the list itself would be changed
    lines[number] = json.dumps(value)
    return "\n".join(lines).encode()


def read_race(content: bytes) -> None:
    found = race.Race.from_json(content)
    race.compare(found), race.first_difference(found)
    race.bars(found.plain), race.arrivals(found.speculative), found.to_json()


def read_measurement(content: bytes) -> None:
    found = measure_store.load(content)
    if found.records:
        measure_report.to_json(found, analyse(found))


def read_prompts(content: bytes) -> None:
    found = prompt_sets.parse(content, name="mine.jsonl")
    assert found.prompts and all(prompt.text.strip() for prompt in found.prompts)


def read_counters(content: bytes) -> None:
    found = vllm_import.read(content)
    assert found.acceptance_rate is None or 0 <= found.acceptance_rate <= 1
    assert all(found.percentiles(name) for name in found.latencies)


PROMPTS = "\n".join(json.dumps({"id": str(n), "kind": "chat", "prompt": f"What is {n}?"}) for n in range(4))
ZIP = io.BytesIO()
with zipfile.ZipFile(ZIP, "w") as archive:
    archive.writestr("a.json", "0" * 100_000)
FILES = [
    b"",
    b"\xef\xbb\xbf{}",
    b"\xff\xfe\x00",
    b"null",
    b"[]",
    b"{}" * 99,
    b"[" * 100_000,
    b'{"a":' * 50_000,
    b"NaN",
    b"9" * 5000,
    b"\x80\x04\x95cposix\nsystem\n(S'id'\ntR.",  # a pickle that would run a command
    ZIP.getvalue(),
    *(text.encode() for text in WORST),
]


def readers() -> dict:
    return {
        "race": (read_race, race.Race(plain=plain_run(), speculative=drafted_run()).to_json()),
        "measurement": (read_measurement, measure_store.dump(made_up([1.5, 1.4, 1.6]))),
        "prompts": (read_prompts, PROMPTS),
        "counters": (read_counters, None),
    }


@pytest.mark.parametrize("name", ["race", "measurement", "prompts", "counters"])
@short_and_long
def test_any_upload_is_read_or_refused_with_a_sentence(name, factor):
    read, good = readers()[name]

    def check(content):
        try:
            read(content)
        except SpecdecError as error:
            assert is_a_sentence(str(error)) and len(str(error)) < 600, str(error)[:900]

    for content in FILES:
        check(content)
        check(content + b"\n")
    if good is not None:
        read(good.encode())
        fuzz(check, 40 * factor, content=damaged(good))
    else:
        good = counters()
        read(good.encode())
        cut = st.integers(0, len(good)).map(lambda end: good[:end].encode())
        numbers = st.sampled_from(["NaN", "-1", "1e400", "+Inf", "x", "", '"', "0"])
        lines = good.splitlines()
        changed = st.tuples(st.integers(0, len(lines) - 1), numbers).map(
            lambda c: "\n".join([*lines[: c[0]], lines[c[0]].rsplit(" ", 1)[0] + " " + c[1], *lines[c[0] + 1 :]]).encode()
        )
        fuzz(check, 40 * factor, content=cut | changed | st.binary(max_size=99))


@pytest.mark.parametrize(("page", "key"), [("race", "race_file"), ("measure", "measurement_file"), ("rounds", "file")])
def test_a_hostile_file_is_a_message_on_the_page_and_the_page_stays(no_engine, page, key):
    at = open_page(ROOT / "pages" / f"{page}.py", {})
    for number, content in enumerate((b"[" * 100_000, b"\xff\xfe\x00", b'{"schema": {}, "title": "<script>"}', ZIP.getvalue())):
        name = f"*{number}*<b>.json{'l' * (page == 'measure')}"
        at.file_uploader(key=key).set_value((name, content, "application/json")).run()
        assert not at.exception and any("was not opened, everything stays as it was" in e.value for e in at.error), at.error
