"""The load test in its short form: a few tabs on the real app, one of which is killed in mid-run."""

from __future__ import annotations

import pytest
from load.class_of_40 import FREED, KILLS, Report, hold


@pytest.mark.slow
def test_no_run_is_lost_and_a_killed_tab_holds_nothing(embedded_folder):
    report = hold(pupils=KILLS, runs=KILLS, tokens=8, seconds=60)
    assert report.lost == [] and report.errors == []
    assert report.completed + report.stopped == KILLS - 1 and report.killed == 1 and report.refused == 0
    assert report.completed >= KILLS - 2  # a run of so few tokens may be over before Stop is seen
    assert len(report.freed) == 3 and max(report.freed) < 3 * FREED  # no time is promised of a busy machine


def test_the_report_knows_a_leak_and_an_unfair_wait():
    fair = dict(pupils=4, tokens=8, alone=[1.0, 2.0], waits=[[1.0, 4.0, 7.9], [15.9]])
    flat = [100, 400, 505, 500, 510, 500, 505, 500]
    assert Report(**fair, memory=flat).good and abs(Report(**fair, memory=flat).growth) < 0.02
    assert Report(**fair, memory=[100, 400, 500, 510, 500, 520, 540, 560]).growth == pytest.approx(0.12, abs=0.02)
    assert not Report(**fair, memory=[100, 400, 500, 510, 500, 520, 540, 560]).good
    assert not Report(**{**fair, "waits": [[8.1], [1.0]]}).good
    assert not Report(**fair, freed=[1.9, 2.1]).good and not Report(**fair, lost=["one"]).good
