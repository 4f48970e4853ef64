"""A measurement through the engine: run by run, beside other people's runs; it can be stopped, gone on with, and left."""

from __future__ import annotations

import dataclasses

import pytest
from waiting import until

from specdec.engine import Engine, Lease, RunRequest
from specdec.measure import Design
from specdec.measure_campaign import Campaign
from specdec.prompt_sets import Prompt
from specdec.trace import Settings


@pytest.fixture(scope="module")
def engine(tiny_pair):
    engine = Engine(lambda name, progress: tiny_pair())
    yield engine
    engine.close()


@pytest.fixture
def design():
    prompts = (Prompt("a", "abc abc abc"), Prompt("b", "hello hello"))
    return Design(pair="tiny", drafters=("lookup",), draft_lengths=(2,), prompts=prompts, repeats=2, new_tokens=12)


def test_every_run_is_a_job_and_every_record_is_kept(engine, design):
    campaign = Campaign(Lease(engine), design)
    campaign.wait(30)
    assert campaign.state == "done" and campaign.measurement.complete and len(campaign.measurement.runs) == 8
    assert campaign.progress.done == 7
    record = campaign.measurement.runs[0]
    assert record.new_tokens == 12 and record.memory.cache > 0 and record.memory.peak > 0
    by_text = {(r.prompt, r.text) for r in campaign.measurement.runs}
    assert len(by_text) == 2  # greedy: each prompt has one text, whatever the arm


def test_requests_at_once_are_one_job(engine, design):
    campaign = Campaign(Lease(engine), dataclasses.replace(design, repeats=1, at_once=(2,), requests=3))
    campaign.wait(30)
    assert campaign.state == "done", campaign.message
    plain, drafted = sorted(campaign.measurement.batches, key=lambda r: r.drafter)
    assert plain.at_once == 2 and plain.requests == 3 and plain.new_tokens == drafted.new_tokens == 36
    assert plain.target_passes == 24 and drafted.drafted > 0  # two together, then the third


def test_stop_keeps_what_there_is_and_the_next_one_goes_on(engine, design):
    lease = Lease(engine)
    long = dataclasses.replace(design, new_tokens=200)
    first = Campaign(lease, long)
    until(lambda: first.measurement is not None and len(first.measurement.records) >= 2)
    first.stop()
    first.wait(30)
    kept = first.measurement
    assert first.state == "stopped" and 2 <= len(kept.records) < 8
    second = Campaign(lease, long, measurement=kept)
    second.wait(60)
    assert second.state == "done" and second.measurement.records[: len(kept.records)] == kept.records
    assert len(second.measurement.records) == 8


def test_what_was_measured_with_other_weights_is_not_gone_on_with(engine, design):
    lease = Lease(engine)
    done = Campaign(lease, design)
    done.wait(30)
    other = dataclasses.replace(done.measurement, origin=dataclasses.replace(done.measurement.origin, weights={"lookup": "1"}))
    again = Campaign(lease, design, measurement=other)
    again.wait(30)
    assert again.state == "stopped" and "other weights" in again.message and again.measurement == other


def test_a_run_of_the_same_tab_ends_it_and_runs_of_others_do_not(engine, design):
    lease, other = Lease(engine), Lease(engine)
    campaign = Campaign(lease, dataclasses.replace(design, new_tokens=300, repeats=10))
    until(lambda: campaign.progress is not None)
    theirs = other.run(RunRequest(prompt="hi", settings=Settings(max_new_tokens=2), pair="tiny"))
    until(lambda: not theirs.active)
    assert theirs.state == "done" and campaign.active
    own = lease.run(RunRequest(prompt="hi", settings=Settings(max_new_tokens=2), pair="tiny"))
    campaign.wait(30)
    until(lambda: not own.active)
    assert campaign.state == "stopped" and "took its place" in campaign.message and own.state == "done"


def test_a_run_of_the_same_tab_ends_it_even_if_it_is_over_before_anybody_looks(engine, design, monkeypatch):
    """Between two jobs of the campaign there is a moment in which it holds none."""
    lease, short = Lease(engine), RunRequest(prompt="hi", settings=Settings(max_new_tokens=1), pair="tiny")
    before = lease.run(short)
    until(lambda: not before.active)
    real, between = Campaign._perform, []

    def and_a_short_run(self, step, pair):
        record = real(self, step, pair)
        if not between:
            between.append(lease.run(short))
            until(lambda: not between[0].active)
        return record

    monkeypatch.setattr(Campaign, "_perform", and_a_short_run)
    campaign = Campaign(lease, design)
    campaign.wait(30)
    assert between[0].state == "done" and campaign.state == "stopped" and "took its place" in campaign.message


def test_nobody_measures_for_a_tab_that_is_gone(engine, design):
    lease = Lease(engine, grace=0.05)
    campaign = Campaign(lease, dataclasses.replace(design, new_tokens=300, repeats=10))
    until(lambda: campaign.progress is not None)
    lease.released()
    campaign.wait(30)
    assert campaign.state == "stopped" and not campaign.measurement.complete
    lease.renew()
    assert not lease.gone


def test_what_the_engine_refuses_is_its_own_sentence(engine, design):
    campaign = Campaign(Lease(engine), dataclasses.replace(design, drafters=("head",)))
    campaign.wait(30)
    assert campaign.state == "failed" and "no drafter 'head'" in campaign.message
    campaign = Campaign(Lease(engine), dataclasses.replace(design, new_tokens=600))
    campaign.wait(30)
    assert campaign.state == "failed" and "600 new tokens were asked for, 512 are allowed" in campaign.message
