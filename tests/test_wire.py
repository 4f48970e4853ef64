"""What travels between an app and the machines that decode: a request arrives as it was sent, and nothing else is one."""

from __future__ import annotations

import dataclasses
import json

import pytest
from sample_traces import SAMPLES

from specdec import wire
from specdec.asked import EveryPlace
from specdec.busy import Busy
from specdec.errors import SettingsError, TraceError
from specdec.experiments import Guesses
from specdec.jobs import Limits, RunRequest
from specdec.law import Law
from specdec.precision import Precision
from specdec.trace import Settings

REQUESTS = (
    RunRequest(prompt="Hello ☂ 🙂\n"),
    RunRequest(prompt="x", settings=Settings(temperature=0.7, seed=2**62, drafter="lookup", draft_length="auto"), method="plain"),
    RunRequest(prompt="x", pair="embedded-int8", race=True, record=False),
    RunRequest(prompt="x", experiment=Law(count=10, tokens=2)),
    RunRequest(prompt="x", experiment=Busy(prompts=("a", "b"), at_once=(1, 2))),
    RunRequest(prompt="x", experiment=Precision(prompts=("a",))),
    RunRequest(prompt="x", experiment=EveryPlace(prompt_ids=(1, 40_000), output_ids=(3,))),
    RunRequest(prompt="x", experiment=Guesses()),
)
PAIRS = ("embedded", "embedded-int8")


def read(data, *, limits: Limits | None = None) -> RunRequest:
    return wire.request_from_json(json.dumps(data).encode(), limits=limits or Limits(), pairs=PAIRS)


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda r: type(r.experiment).__name__)
def test_a_request_arrives_as_it_was_sent(request_):
    assert read(wire.request_to_dict(request_)) == request_


def changed(**changes) -> dict:
    return wire.request_to_dict(RunRequest(prompt="x")) | changes


LAW = {"kind": "Law"}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ([], "no JSON object"),
        ({}, "has format None"),
        (changed(wire=2), "has format 2"),
        (changed(prompt=3), "request.prompt should be a text"),
        (changed(prompt="  "), "prompt is empty"),
        (changed(prompt="x" * 20_001), "20,001 characters"),
        (changed(prompt="\ud800"), "half a character"),
        (changed(race=1), "request.race should be true or false"),
        (changed(method="other"), "request.method is 'other'"),
        (changed(method={}), "request.method is"),
        (changed(pair="../../etc"), "is not offered here: take embedded, embedded-int8"),
        (changed(pair="qwen3-8b"), "is not offered here"),
        (changed(code="print()"), "unknown field 'code'"),
        (changed(settings=[]), "request.settings should be an object"),
        (changed(settings={"seed": "1"}), "request.settings.seed should be a whole number"),
        (changed(settings={"seed": True}), "request.settings.seed should be a whole number"),
        (changed(settings={"seed": 1.0}), "request.settings.seed should be a whole number"),
        (changed(settings={"draft_length": 33}), "draft length is 33"),
        (changed(settings={"temperature": float("nan")}), "temperature is nan"),
        (changed(settings={"max_new_tokens": 513}), "513 new tokens"),
        (changed(settings={"loader": "os"}), "unknown field 'loader'"),
        (changed(together=["a"]), "send one prompt"),
        (changed(at_once=2), "send one prompt"),
        (changed(together="ab"), "request.together should be a list"),
        (changed(experiment="Law"), "no experiment 'Law'"),
        (changed(experiment={"kind": "system"}), "no experiment 'system'"),
        (changed(experiment={"kind": ["Law"]}), "no experiment"),
        (changed(experiment=LAW | {"module": "os"}), "unknown field 'module'"),
        (changed(experiment=LAW | {"count": 10**6}), "experiment.count is 1000000"),
        (changed(experiment=LAW | {"at_once": 65}), "take numbers from 0 to 64"),
        (changed(experiment=LAW | {"tokens": 513}), "take numbers from 0 to 512"),
        (changed(experiment=LAW | {"temperature": float("inf")}), "experiment.temperature is inf"),
        (changed(experiment=LAW | {"count": -1}), "experiment.count is -1"),
        (changed(experiment={"kind": "Busy"}), "experiment lacks 'prompts'"),
        (changed(experiment={"kind": "Busy", "prompts": ["a"], "at_once": [1, 1000]}), "take numbers from 0 to 64"),
        (changed(experiment={"kind": "Busy", "prompts": ["a"], "turns": 9000}), "steps, 10,000 are allowed"),
        (changed(experiment={"kind": "EveryPlace", "prompt_ids": [0] * 9000, "output_ids": []}), "list of at most 8,192"),
    ],
)
def test_what_is_no_request_gets_one_sentence(data, words):
    with pytest.raises(SettingsError) as refused:
        read(data)
    said = str(refused.value)
    assert words in said and "\n" not in said and len(said) < 300


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 200_000, b"1" * 5000, b"x" * (wire.MAX_BODY + 1)])
def test_what_is_no_json_gets_one_sentence(body):
    with pytest.raises(SettingsError, match=r"no JSON|bytes"):
        wire.request_from_json(body, limits=Limits(), pairs=PAIRS)


def test_every_field_of_a_request_travels():
    """A field that is added to the records has to be thought of here."""
    assert set(changed()) == {f.name for f in dataclasses.fields(RunRequest)} | {"wire"}
    assert set(changed()["settings"]) == {f.name for f in dataclasses.fields(Settings)}


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_a_trace_that_came_in_pieces_is_the_trace(name):
    trace = SAMPLES[name]()
    rounds = [wire.round_from_data(json.loads(wire.line("round", round=wire.round_to_data(r)))["round"]) for r in trace.rounds]
    head = json.loads(wire.result_to_line(trace, leg="run", at=1.0))
    assert head["rounds"] == len(trace.rounds) and head["trace"]["rounds"] == []
    assert wire.complete(wire.head_from_data(head["trace"]), rounds) == trace
    if len(rounds) > 1:
        with pytest.raises(TraceError):
            wire.complete(wire.head_from_data(head["trace"]), rounds[:-1])


@pytest.mark.parametrize("kind", ["", "os", "Trace", None, 3])
def test_only_known_findings_are_read(kind):
    with pytest.raises(TraceError, match="no finding"):
        wire.finding_from_data(kind, {})


def test_rounds_are_the_same_by_tokens_verdicts_and_draws():
    one = SAMPLES["rejected"]().rounds[0]
    draft = one.drafts[0]
    assert wire.same_round(one, dataclasses.replace(one, seconds=dataclasses.replace(one.seconds, verify=9.0)))
    assert wire.same_round(one, dataclasses.replace(one, drafts=(dataclasses.replace(draft, p=draft.p + 1e-6), *one.drafts[1:])))
    for change in ({"id": draft.id + 1}, {"u": 0.123}):
        assert not wire.same_round(one, dataclasses.replace(one, drafts=(dataclasses.replace(draft, **change), *one.drafts[1:])))
    assert not wire.same_round(one, None) and wire.same_round(None, None)
