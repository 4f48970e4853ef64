"""A trace travels as JSON without a loss, stays small, and a damaged file is refused with one clear sentence."""

import dataclasses
import json
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sample_traces import SAMPLES

from specdec import metrics
from specdec.errors import SettingsError, TraceError
from specdec.trace import SCHEMA, TOP, Draft, Outcome, Round, Seconds, Settings, TokenProbability, Trace

settings.register_profile("busy machine", deadline=None)  # a slow example is no failure
settings.load_profile("busy machine")

JSON = {name: json.loads(make().to_json()) for name, make in SAMPLES.items()}


def at(data, path):
    """The container of the last step of `path`, and that step."""
    for step in path[:-1]:
        data = data[step]
    return data, path[-1]


def damaged(path, value, *, name="rejected"):
    """A sample with one place changed, as JSON; `path` is "rounds 0 drafts 1 p"."""
    data = json.loads(json.dumps(JSON[name]))
    steps = [int(s) if s.isdigit() else s for s in path.split()]
    container, last = at(data, steps)
    if value is KeyError:
        del container[last]
    else:
        container[last] = value
    return json.dumps(data)


# There and back


@pytest.mark.parametrize("name", SAMPLES)
def test_a_trace_comes_back_as_it_was(name):
    trace = SAMPLES[name]()
    assert Trace.from_json(trace.to_json()) == trace
    assert Trace.from_json(trace.to_json().encode()) == trace
    assert json.loads(Trace.from_json(trace.to_json()).to_json()) == json.loads(trace.to_json())


def test_the_names_in_the_file_are_those_of_the_schema():
    data = JSON["rejected"]
    assert data["schema"] == SCHEMA == 1
    assert set(data) >= {
        "settings", "pair", "device", "versions", "prompt", "prompt_ids", "output_ids", "output_text", "finish_reason",
        "seconds_to_first_token", "rounds", "totals", "plain_step_seconds",
    }  # fmt: skip
    round_ = data["rounds"][0]
    assert set(round_) == {"index", "start", "drafts", "outcome", "seconds"}
    assert set(round_["seconds"]) >= {"draft", "verify", "judge"} and len(round_["seconds"]["draft"]) == 4
    assert set(round_["drafts"][0]) >= {
        "id", "text", "q", "p", "accept_probability", "u", "status", "overlap", "top_p", "top_q",
    }  # fmt: skip
    assert set(round_["outcome"]) >= {"kind", "id", "text", "p", "distribution", "residual_mass"}
    assert [d["status"] for d in round_["drafts"]] == ["accepted", "accepted", "rejected", "discarded"]
    token, text, probability = round_["drafts"][2]["top_p"][0]
    assert (type(token), text, probability) == (int, " report", 0.52)
    assert len(round_["drafts"][2]["top_p"]) == TOP == 10


def test_greedy_runs_have_no_draws():
    for round_ in JSON["greedy"]["rounds"]:
        assert all(d["u"] is None and d["accept_probability"] in (0, 1) for d in round_["drafts"])


def test_text_is_data_whatever_it_contains():
    trace = SAMPLES["hostile"]()
    assert "onerror" in trace.to_json() and "\u202e" in trace.output_text
    assert Trace.from_json(trace.to_json()).output_text == trace.output_text


def test_unknown_names_are_ignored_and_optional_ones_filled_in():
    data = json.loads(json.dumps(JSON["rejected"])) | {"comment": "mine"}
    del data["title"], data["plain_step_seconds"]
    trace = Trace.from_dict(data)
    assert (trace.title, trace.plain_step_seconds) == ("", None)


def test_numbers_that_json_does_not_know_are_never_written():
    trace = SAMPLES["rejected"]()
    with pytest.raises(ValueError, match="not JSON compliant"):
        dataclasses.replace(trace, seconds_to_first_token=float("nan")).to_json()


# Size

WORDS = [" the", " of", "ing", " understanding", ".", "\n", " and", " a", " photosynthesis", "s", " is", " light", ",", " to"]


def long_trace(draft_length: int, *, alpha: float, new_tokens: int = 200) -> Trace:
    """A sampled run with full lists and full-length numbers everywhere; drafts are accepted by coin with chance `alpha`."""
    rng = random.Random(3)

    def top() -> tuple[TokenProbability, ...]:
        weights = sorted((rng.random() ** 4 for _ in range(TOP)), reverse=True)
        return tuple(
            TokenProbability(rng.randrange(1000, 49152), rng.choice(WORDS), float(f"{w / sum(weights) * 0.9:.6g}")) for w in weights
        )

    def draft(status: str) -> Draft:
        return Draft(
            id=rng.randrange(1000, 49152),
            text=rng.choice(WORDS),
            q=rng.random(),
            p=rng.random(),
            accept_probability=rng.random(),
            u=None if status == "discarded" else rng.random(),
            status=status,
            overlap=float(f"{rng.random():.6g}"),
            top_p=top(),
            top_q=top(),
            draw_u=rng.random(),
        )

    base, rounds, made = SAMPLES["bonus"](), [], 0
    while made < new_tokens:
        length = min(draft_length, new_tokens - made - 1)
        kept = next((i for i in range(length) if rng.random() >= alpha), length)
        statuses = ["accepted"] * kept + ["rejected"] * (kept < length) + ["discarded"] * (length - kept - 1)
        outcome = Outcome(
            kind="replacement" if kept < length else "bonus",
            id=rng.randrange(1000, 49152),
            text=rng.choice(WORDS),
            p=rng.random(),
            u=rng.random(),
            distribution=top(),
            residual_mass=rng.random() if kept < length else None,
        )
        seconds = Seconds(draft=(0.0123456,) * length, verify=0.1234567, judge=0.0012345, record=0.0012345)
        drafts = tuple(draft(s) for s in statuses)
        start = len(base.prompt_ids) + made
        rounds.append(Round(index=len(rounds), start=start, drafts=drafts, outcome=outcome, seconds=seconds))
        made += kept + 1
    ids = tuple(i for r in rounds for i in r.new_ids)
    return dataclasses.replace(base, rounds=tuple(rounds), output_ids=ids, output_text=" understanding" * 200)


@pytest.mark.parametrize("draft_length, alpha", [(4, 0.0), (4, 0.6), (8, 0.4), (8, 0.6)])
def test_a_trace_of_200_tokens_stays_under_a_megabyte(draft_length, alpha):
    """γ = 4 even if not one draft is accepted; γ = 8 unless nearly all that was drafted is thrown away."""
    trace = long_trace(draft_length, alpha=alpha)
    assert len(trace.output_ids) == 200
    assert len(trace.to_json().encode()) < 1_000_000


# Damage


@pytest.mark.parametrize(
    "text, words",
    [
        ("", "not readable JSON"),
        ("{", "not readable JSON"),
        (b"\xff\xfe\x00", "not readable JSON"),
        ("[" * 100_000, "not readable JSON"),
        ("null", "holds one JSON object"),
        ("[]", "holds one JSON object"),
        ('"trace"', "holds one JSON object"),
        ("{}", "names no trace schema"),
        ('{"schema": 99}', "has trace schema 99 and this version reads schema 1"),
        ('{"schema": 1}', "trace lacks 'created'"),
        (json.dumps(JSON["rejected"])[:-200], "not readable JSON"),
        (json.dumps({"schema": "x" * 9999}), "has trace schema xxxxxxxxxxxxxxxxxxxx and"),
    ],
)
def test_what_is_no_trace_is_refused(text, words):
    with pytest.raises(TraceError, match=words) as caught:
        Trace.from_json(text)
    assert len(str(caught.value)) < 250 and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "path, value, words",
    [
        ("rounds", KeyError, "trace lacks 'rounds'"),
        ("rounds 0 drafts 1 q", KeyError, r"trace.rounds\[0\].drafts\[1\] lacks 'q'"),
        ("rounds 0 drafts 1 q", "much", r"trace.rounds\[0\].drafts\[1\].q should be a number"),
        ("rounds 0 drafts 1 q", True, "q should be a number"),
        ("rounds 0 drafts 1 q", None, "q should be a number"),
        ("rounds 0 drafts 1 q", float("nan"), "q should be a number"),
        ("rounds 0 drafts 1 q", float("inf"), "q should be a number"),
        ("rounds 0 drafts 1 q", 10**400, "q should be a number"),
        ("rounds 0 drafts 1 q", 1.5, "a probability of round 0 is outside 0 to 1"),
        ("rounds 0 drafts 1 u", -0.5, "a probability of round 0 is outside 0 to 1"),
        ("rounds 0 drafts 1 top_q 0", [1, "x"], r"should be \[id, text, probability\]"),
        ("rounds 0 drafts 1 top_q 0", [1, "x", 7.0], "a probability of round 0 is outside 0 to 1"),
        ("rounds 2 outcome residual_mass", 3.0, "a probability of round 2 is outside 0 to 1"),
        ("rounds 0 drafts 1 id", 1.5, "id should be a whole number"),
        ("rounds 0 drafts 1 id", 10**30, "id should be a whole number"),
        ("rounds 0 drafts 3 id", -4, "a token id is outside"),
        ("rounds 0 drafts 1 text", 5, "text should be a text"),
        ("rounds 0 drafts 1 text", "\ud83d", "text has half a character"),
        ("rounds 0 drafts 1 bytes", "xyz", "bytes of a token of round 0 are not hexadecimal"),
        ("rounds 0 drafts 1 status", "perhaps", "status is 'perhaps'"),
        ("rounds 0 drafts 1 status", ["accepted"], "status is"),
        ("rounds 0 drafts 1 status", "discarded", "the verdicts of round 0 are in an impossible order"),
        ("rounds 0 drafts 3 status", "accepted", "the verdicts of round 0 are in an impossible order"),
        ("rounds 0 drafts 3 status", "rejected", "the verdicts of round 0 are in an impossible order"),
        ("rounds 0 outcome kind", "bonus", "the outcome of round 0 does not follow from its verdicts"),
        ("rounds 0 outcome id", None, "the outcome of round 0 does not follow from its verdicts"),
        ("rounds 0 outcome id", 999, "its rounds do not add up to its output"),
        ("rounds 0 seconds verify", -0.1, "a time of round 0 is -0.1 seconds"),
        ("rounds 0 seconds draft 0", 1e300, r"a time of round 0 is 1e\+300 seconds"),
        ("rounds 1 index", 7, "round 1 says it is number 7"),
        ("rounds 1 start", 2, "round 1 says it is number 1 starting at 2"),
        ("rounds 0 drafts", {}, r"drafts should be a list"),
        ("rounds 0", [], r"trace.rounds\[0\] should be an object"),
        ("rounds 1", KeyError, "round 1 says it is number 2"),
        ("method", "plain", "round 0 has drafts, and plain decoding drafts nothing"),
        ("method", "magic", "method is 'magic'"),
        ("settings draft_length", 400, "draft length is 400: take a whole number from 0 to 32"),
        ("settings top_p", 0, "top-p is 0"),
        ("totals accepted", 99, "its totals say 99 for accepted drafts and its rounds add up to"),
        ("totals seconds", -1, "a time of the totals is -1 seconds"),
        ("seconds_to_first_token", -1, "a time of the first token is -1 seconds"),
        ("plain_step_seconds", 0, "a plain step cannot take 0 seconds"),
        ("read_bandwidth", 0.0, "memory cannot be read at 0 bytes per second"),
        ("versions", [], "versions should map names to texts"),
        ("versions specdec", 1, "versions.specdec should be a text"),
        ("prompt_ids 0", "a", r"prompt_ids\[0\] should be a whole number"),
        ("output_ids", [], "its rounds do not add up to its output"),
    ],
)
def test_a_damaged_trace_says_what_and_where(path, value, words):
    with pytest.raises(TraceError, match=words) as caught:
        Trace.from_json(damaged(path, value))
    assert len(str(caught.value)) < 250 and "\n" not in str(caught.value)


def test_a_run_can_only_end_without_an_outcome_on_an_accepted_draft():
    none = {"kind": "none", "id": None, "text": "", "p": None, "u": None, "distribution": [], "residual_mass": None}
    with pytest.raises(TraceError, match="the outcome of round 0 does not follow"):
        Trace.from_json(damaged("rounds 0 outcome", none, name="plain"))
    assert SAMPLES["ends_in_drafts"]().rounds[-1].outcome.kind == "none"


def use(trace: Trace) -> None:
    """What a page does with an opened trace."""
    figures = metrics.summary(trace)
    metrics.speed_sentence(figures)
    metrics.acceptance_by_position(trace)
    metrics.accepted_per_round(trace)
    metrics.timeline(trace)
    for name in metrics.METRICS:
        metrics.show(name, getattr(figures, name)).encode()
    trace.to_json().encode()


def paths(value, path=()):
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from paths(inner, (*path, key))


PATHS = {name: list(paths(JSON[name])) for name in ("one_draft", "greedy", "emoji", "ends_in_drafts", "lookup", "plain")}
odd = st.sampled_from(
    [None, True, False, 0, -1, 1, 2, 10**30, 10**400, 0.5, -0.5, 1.5, 1e308, -1e308, 5e-324, float("nan"), float("inf"), "", "x"]
    + ["accepted", "rejected", "discarded", "bonus", "none", "\ud800", "ff", [], {}, [1], [1, "a", 0.5], {"a": 1}]
)


@given(st.data())
@settings(max_examples=250, suppress_health_check=[HealthCheck.too_slow])
def test_a_mutated_trace_is_read_and_usable_or_refused(data):
    """Up to three places changed, removed or doubled: never any other exception than TraceError."""
    name = data.draw(st.sampled_from(sorted(PATHS)))
    mutated = json.loads(json.dumps(JSON[name]))
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(PATHS[name]))
        try:
            container, last = at(mutated, path)
            action = data.draw(st.sampled_from(["change", "change", "remove", "double"]))
            if action == "remove":
                del container[last]
            else:
                container[last] = data.draw(odd) if action == "change" else [container[last]] * 2
        except (KeyError, IndexError, TypeError):
            pass  # an earlier mutation took the place away
    try:
        trace = Trace.from_json(json.dumps(mutated))
    except TraceError:
        return
    use(trace)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@given(json_values)
def test_any_other_json_is_refused(value):
    with pytest.raises(TraceError):
        Trace.from_json(json.dumps(value))


@given(st.binary(max_size=40) | st.text(max_size=40))
def test_any_other_file_is_refused(content):
    with pytest.raises(TraceError):
        Trace.from_json(content)


WHOLE_FILE = json.dumps(JSON["one_draft"])


@given(st.integers(0, len(WHOLE_FILE) - 1))
def test_a_file_cut_off_anywhere_is_refused(length):
    with pytest.raises(TraceError):
        Trace.from_json(WHOLE_FILE[:length])


# Settings


@pytest.mark.parametrize(
    "change, words",
    [
        ({"draft_length": -1}, "draft length is -1: take a whole number from 0 to 32"),
        ({"draft_length": 4.0}, "draft length is 4.0"),
        ({"draft_length": True}, "draft length is True"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"temperature": float("inf")}, "temperature is inf"),
        ({"temperature": 10**400}, "temperature is 1000"),
        ({"temperature": 1e-9}, "too close to 0"),
        ({"top_p": 0}, "leaves no token to choose"),
        ({"top_p": 1.01}, "top-p is 1.01"),
        ({"top_k": -1}, "top-k is -1"),
        ({"max_new_tokens": 0}, "max new tokens is 0"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named_with_its_value(change, words):
    with pytest.raises(SettingsError, match=words):
        Settings(**change)


def test_settings_are_greedy_at_temperature_zero_only():
    assert Settings().greedy and not Settings(temperature=0.001).greedy
    assert Settings().replace(draft_length=7).draft_length == 7
