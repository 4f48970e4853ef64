"""A pair runs on the best device there is, in a number format that suits it, and only if it fits."""

import pytest
import torch

from specdec import devices, models
from specdec.errors import ModelError, SettingsError
from specdec.models import load_pair

CPU = torch.device("cpu")


def sentence(error: pytest.ExceptionInfo) -> str:
    text = str(error.value)
    assert "\n" not in text and text.endswith("."), text
    return text


def test_a_pair_that_does_not_fit_is_refused_with_the_figures_before_anything_is_fetched(monkeypatch):
    monkeypatch.setattr(devices, "free_memory", lambda device: 3_000_000_000)
    monkeypatch.setattr(models, "find_model", lambda *a, **k: pytest.fail("it was fetched"))
    with pytest.raises(ModelError) as error:
        load_pair("qwen3-8b", device="cpu")
    text = sentence(error)
    for part in ("Qwen3-8B", "8.79 billion", "75.7 GB in float32", "3.0 GB free", "bfloat16, which needs 20.5 GB"):
        assert part in text


def test_a_folder_that_does_not_fit_is_refused_before_it_is_loaded(saved, monkeypatch):
    monkeypatch.setattr(devices, "free_memory", lambda device: 300_000_000)
    monkeypatch.setattr(models, "load_model", lambda *a, **k: pytest.fail("it was loaded"))
    with pytest.raises(ModelError, match="300 MB free"):
        load_pair(target=str(saved / "target"), device="cpu")


def test_where_the_system_does_not_tell_its_memory_nothing_is_refused(monkeypatch):
    monkeypatch.setattr(devices, "free_memory", lambda device: None)
    devices.require_memory(10**13, dtype="float32", device=CPU, title="x")


def test_free_memory_is_plausible():
    free = devices.free_memory(CPU)
    assert free is None or 10_000_000 < free < 10**14


@pytest.mark.parametrize(
    "limit, expected", [("max", 8_000_000 * 1024), ("2000000000", 2_000_000_000 - 900_000_000 + 400_000_000)]
)
def test_a_containers_limit_counts(tmp_path, limit, expected):
    group = tmp_path / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal:       16000000 kB\nMemAvailable:    8000000 kB\n")
    (group / "memory.max").write_text(limit + "\n")
    (group / "memory.current").write_text("900000000\n")
    (group / "memory.stat").write_text("anon 5\ninactive_file 400000000\n")
    assert devices._free_linux(tmp_path) == expected


@pytest.mark.parametrize(
    "cuda, mps, wanted, expected",
    [
        (1, False, "auto", "cuda:0"),
        (0, True, "auto", "mps"),
        (0, False, "auto", "cpu"),
        (2, True, "cuda:1", "cuda:1"),
        (1, True, "cpu", "cpu"),
        (1, False, "cuda", "cuda:0"),
    ],
)
def test_the_device_is_cuda_then_mps_then_cpu(monkeypatch, cuda, mps, wanted, expected):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    assert str(devices.choose_device(wanted)) == expected


@pytest.mark.parametrize("wanted", ["gpu", "cuda:1", "cuda:-1", "mps", "", "cpu:3"])
def test_a_device_that_is_not_there_is_one_sentence(monkeypatch, wanted):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(SettingsError) as error:
        devices.choose_device(wanted)
    assert wanted in sentence(error)


@pytest.mark.parametrize("capability, expected", [((9, 0), "bfloat16"), ((8, 0), "bfloat16"), ((7, 5), "float16")])
def test_cuda_runs_in_bfloat16_where_it_can(monkeypatch, capability, expected):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert devices.choose_dtype("auto", device=torch.device("cuda:0"), parameters=1) == expected


def test_number_formats():
    assert devices.choose_dtype("auto", device=CPU, parameters=10**12) == "float32"
    assert devices.choose_dtype("auto", device=torch.device("mps"), parameters=10**8) == "float32"
    assert devices.choose_dtype("fp16", device=CPU, parameters=1) == "float16"
    with pytest.raises(SettingsError, match="dtype is 'int4': take auto, float32"):
        load_pair(dtype="int4", device="cpu")
