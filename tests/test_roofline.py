"""The roofline by hand, its limits, and what memory holds."""

from __future__ import annotations

import pytest

from specdec import theory
from specdec.roofline import DEVICES, PAIRINGS, Device, Load, Model, Pairing, memory, most_requests, pass_seconds

# A device and a model with round numbers: 1e12 operations/s, 1e11 bytes/s; 1e9 parameters
DEVICE = Device(name="round", operations=1e12, bandwidth=1e11, memory=10e9, source="made up for this test")
TARGET = Model(name="target", parameters=1e9, layers=10, query_width=1000, cache_width=500)
DRAFT = Model(name="draft", parameters=1e8, layers=2, query_width=500, cache_width=250)
PAIR = Pairing(target=TARGET, draft=DRAFT)


def test_a_pass_over_one_token_is_bound_by_reading_the_weights():
    # 1e9 × 2 bytes / 1e11 = 20 ms; arithmetic 2e9 / 1e12 = 2 ms
    assert pass_seconds(TARGET, DEVICE, sequences=1, tokens=1, context=0) == pytest.approx(0.020)
    assert pass_seconds(TARGET, DEVICE, sequences=1, tokens=10, context=0) == pytest.approx(0.020)  # ten are free


def test_behind_the_ridge_arithmetic_counts():
    assert pass_seconds(TARGET, DEVICE, sequences=1, tokens=20, context=0) == pytest.approx(0.040)
    assert pass_seconds(TARGET, DEVICE, sequences=4, tokens=5, context=0) == pytest.approx(0.040)
    assert Load(pairing=PAIR, device=DEVICE, sequences=1, context=0).free_tokens == pytest.approx(10)
    assert Load(pairing=PAIR, device=DEVICE, sequences=5, context=0).free_tokens == pytest.approx(2)


def test_the_cache_is_read_and_attended_to():
    # cache of a token: 2 × 10 × 500 × 2 = 20,000 bytes; 3 sequences × 1,000 tokens: 6e7 bytes = 0.6 ms
    assert TARGET.cache_bytes == 20_000
    assert pass_seconds(TARGET, DEVICE, sequences=3, tokens=1, context=1000) == pytest.approx(0.0206)
    # arithmetic: 3 × 8 × (2e9 + 4 × 10 × 1000 × 1000) = 24 × 2.04e9
    assert pass_seconds(TARGET, DEVICE, sequences=3, tokens=8, context=1000) == pytest.approx(24 * 2.04e9 / 1e12)


def test_fewer_bits_make_reading_quicker_and_verification_dearer():
    half = Load(pairing=PAIR, device=DEVICE, sequences=1, context=0, bytes_per_weight=0.5)
    assert half.seconds(TARGET, 1) == pytest.approx(0.005) and half.free_tokens == pytest.approx(2.5)
    assert half.verify_ratio(4) == pytest.approx(2.0)


def test_speed_up_of_a_quiet_device_is_the_papers():
    quiet = Load(pairing=PAIR, device=DEVICE, sequences=1, context=0)
    assert quiet.verify_ratio(4) == 1 and quiet.cost_coefficient == pytest.approx(0.1)
    assert quiet.speedup(0.8, 4) == pytest.approx(theory.speedup(0.8, 4, 0.1))


def test_a_busy_device_loses():
    busy = Load(pairing=PAIR, device=DEVICE, sequences=64, context=0)
    assert busy.verify_ratio(4) == pytest.approx(5) and busy.speedup(0.8, 4) < 1
    assert busy.best(0.8).draft_length == 0


@pytest.mark.parametrize("pairing", PAIRINGS.values(), ids=str)
@pytest.mark.parametrize("device", DEVICES.values(), ids=lambda d: d.name)
def test_every_preset_gains_less_when_it_is_busy(pairing, device):
    """Not step by step: c changes as well, and with long texts reading the caches keeps even a busy device waiting for memory."""
    loads = [Load(pairing=pairing, device=device, sequences=b, context=1024) for b in (1, 4, 16, 64, 256, 1024)]
    ratios = [load.verify_ratio(4) for load in loads]
    assert ratios == sorted(ratios) and ratios[0] >= 1 and ratios[-1] <= 5 + 1e-9
    assert loads[-1].speedup(0.8, 4) < loads[0].speedup(0.8, 4)
    assert device.source and device.operations > device.bandwidth


def test_memory_by_hand():
    need = memory(PAIR, requests=4, context=1000)
    assert (need.target_weights, need.draft_weights) == (2e9, 2e8)
    assert need.target_cache == 4 * 1000 * 20_000 and need.draft_cache == 4 * 1000 * 2 * 2 * 250 * 2
    assert need.total == need.plain + 2e8 + need.draft_cache


def test_how_many_requests_fit():
    # (10e9 − 2e9) / 20e6 = 400; with the draft (10e9 − 2.2e9) / 22e6 = 354
    assert most_requests(PAIR, DEVICE, context=1000, bytes_per_weight=2, drafting=False) == 400
    assert most_requests(PAIR, DEVICE, context=1000, bytes_per_weight=2, drafting=True) == 354
    big = PAIRINGS["Llama-3.1-70B + Llama-3.1-8B"]
    assert most_requests(big, DEVICES["L4"], context=1000, bytes_per_weight=2, drafting=False) == 0


def test_known_sizes_of_caches():
    """Llama-3.1-8B: 128 KiB a token in 16 bits (32 layers × 8 heads × 128 × 2 × 2)."""
    assert PAIRINGS["Llama-3.1-8B + Llama-3.2-1B"].target.cache_bytes == 128 * 1024
