"""Runs of one prompt with every drafter: in turns, the middle one of each, against one plain step."""

from __future__ import annotations

import dataclasses

import pytest
from sample_traces import SAMPLES

from specdec import metrics
from specdec.drafter_runs import in_turns, middle_runs, requests_of_all, with_one_plain_step


def run(drafter: str, slower: float, step: float | None = 0.01):
    """The made-up run with every time `slower` times as long."""
    made = SAMPLES["rejected"]()
    rounds = [
        dataclasses.replace(
            r,
            seconds=dataclasses.replace(
                r.seconds,
                draft=[slower * s for s in r.seconds.draft],
                verify=slower * r.seconds.verify,
                judge=slower * r.seconds.judge,
            ),
        )
        for r in made.rounds
    ]
    totals = dataclasses.replace(made.totals, seconds_other=slower * made.totals.seconds_other)
    settings = made.settings.replace(drafter=drafter)
    return dataclasses.replace(made, settings=settings, rounds=rounds, totals=totals, plain_step_seconds=step)


def test_every_turn_begins_with_another_drafter():
    assert in_turns(["a", "b", "c"], 2) == ["a", "b", "c", "b", "c", "a"]
    asked = requests_of_all("x", ("head", "lookup"), draft_length=3)
    assert [name for name, _ in asked] == ["head", "lookup", "random", "lookup", "random", "head", "random", "head", "lookup"]
    assert all((r.experiment is not None) == (name == "random") and r.settings.greedy for name, r in asked)
    assert {r.settings.draft_length for _, r in asked} == {3}


def test_the_middle_run_counts():
    runs = [run("head", 3.0), run("lookup", 1.0), run("head", 1.0), run("head", 2.0), run("lookup", 5.0)]
    found = middle_runs(runs)
    assert list(found) == ["head", "lookup"] and found["head"] is runs[3] and found["lookup"] is runs[1]
    assert middle_runs([]) == {}
    alone = run("head", 1.0)  # the others shared their passes with somebody's, and were slower for it
    assert middle_runs([run("head", 2.0, step=None), alone, run("head", 3.0, step=None)])["head"] is alone
    assert middle_runs([run("head", 2.0, step=None)])["head"].plain_step_seconds is None


def test_all_are_held_against_the_median_of_the_plain_steps():
    runs = {"a": run("a", 1.0, step=0.010), "b": run("b", 1.0, step=0.030), "c": run("c", 1.0, step=0.012), "d": run("d", 1.0, step=None)}
    found = with_one_plain_step(runs)
    assert [r.plain_step_seconds for r in found.values()] == [0.012, 0.012, 0.012, None]
    speeds = {name: metrics.summary(r).speedup for name, r in found.items()}
    assert speeds["a"] == speeds["b"] == pytest.approx(metrics.summary(runs["a"]).speedup * 1.2) and speeds["d"] is None
    assert with_one_plain_step({"d": runs["d"]}) == {"d": runs["d"]}
