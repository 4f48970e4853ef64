"""The command line in front of other machines, and the one that starts them (without Ray: what is started is looked at)."""

from __future__ import annotations

import json
import socket
import sys

import pytest
from machines import Machines, alone

from specdec import cli, cluster, serve_cli
from specdec.engine import Limits, RunRequest
from specdec.errors import ModelError, SettingsError
from specdec.race import Race
from specdec.trace import Settings, Trace

SAMPLED = ["--temperature", "1", "--seed", "7", "--max-new-tokens", "12", "--drafter", "early-exit"]


@pytest.fixture
def there(tiny_pair):
    machines = Machines(tiny_pair())
    yield machines
    machines.close()


def test_a_run_over_there_prints_what_a_run_here_prints(there, tiny_pair, capsys, tmp_path):
    file = tmp_path / "trace.json"
    assert cli.main(["run", "Hello there", *SAMPLED, "--engine", there.address, "--trace", str(file)]) == 0
    out, trace = capsys.readouterr().out, Trace.from_json(file.read_bytes())
    settings = Settings(temperature=1.0, seed=7, max_new_tokens=12, drafter="early-exit")
    here = alone(tiny_pair(), RunRequest(prompt="Hello there", settings=settings))
    assert trace.output_ids == here.output_ids and len(trace.rounds) == len(here.rounds)
    assert out.startswith("tiny-llama on cpu, float32, drafter early-exit; ") and "Acceptance rate" in out
    assert out.count("/4  ") + out.count("/3  ") + out.count("/2  ") + out.count("/1  ") + out.count("/0  ") == len(trace.rounds)


def test_plain_decoding_over_there_prints_its_text(there, capsys, monkeypatch):
    monkeypatch.setenv("SPECDEC_ENGINE", there.address)  # the environment names the engine as well
    assert cli.main(["plain", "Hello there", "--max-new-tokens", "8"]) == 0
    out = capsys.readouterr().out
    assert "plain decoding" in out and "8 in 8 target passes" in out
    assert there.each[0].requests[0].method == "plain"


def test_a_race_over_there(there, capsys, tmp_path):
    file = tmp_path / "race.json"
    assert cli.main(["race", "Hello there", "--max-new-tokens", "8", "--engine", there.address, "--out", str(file), "--json"]) == 0
    race = Race.from_json(file.read_bytes())
    assert len(race.plain.output_ids) == 8 and json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("option", [["--device", "cpu"], ["--dtype", "float32"], ["--target", "x/y"], ["--split", "layers"]])
def test_what_the_machines_have_chosen_themselves_is_not_chosen_here(option, capsys):
    assert cli.main(["run", "x", "--engine", "http://127.0.0.1:9", *option]) == 2
    assert f"{option[0]} does not go with the engine" in capsys.readouterr().err


def test_nobody_there_is_one_sentence(capsys):
    assert cli.main(["run", "x", "--engine", "http://127.0.0.1:9"]) == 2
    assert "does not answer" in capsys.readouterr().err
    assert cli.main(["run", "x", "--engine", "somewhere"]) == 2
    assert "no address of an engine" in capsys.readouterr().err


def test_a_refusal_over_there_is_the_sentence_here(there, capsys):
    assert cli.main(["run", "x", "--engine", there.address, "--pair", "qwen3-4b"]) == 2
    assert "is not offered here" in capsys.readouterr().err


# --- serve ---


@pytest.fixture
def started(monkeypatch):
    """What would have been started, and how often it was ended."""
    found: dict = {"stops": 0}

    def start(plan, **options):
        found.update(plan=plan, options=options)
        return f"http://{options['host']}:{options['port']}"

    monkeypatch.setattr(cluster, "start", start)
    monkeypatch.setattr(cluster, "stop", lambda: found.update(stops=found["stops"] + 1))
    monkeypatch.delenv("SPECDEC_PAIRS", raising=False)
    return found


def test_serve_says_where_and_ends_what_it_started(started, capsys, monkeypatch):
    monkeypatch.setenv("SPECDEC_AT_ONCE", "7")
    assert serve_cli.main(["--replicas", "2", "--device", "cpu", "--threads", "1"], wait=lambda: None) == 0
    assert "SPECDEC_ENGINE=http://127.0.0.1:8000" in capsys.readouterr().out
    plan = started["plan"]
    assert (plan.replicas, plan.threads, plan.gpus, plan.device, plan.limits.at_once) == ((2, 2), 1, 0.0, "cpu", 7)
    assert plan.pairs == ("embedded", "embedded-int8") and started["stops"] == 1 and started["options"]["address"] is None


def test_what_was_started_in_a_cluster_that_is_there_stays(started):
    assert serve_cli.main(["--replicas", "2-8", "--gpus", "0.5", "--device", "cuda", "--address", "auto"], wait=pytest.fail) == 0
    assert started["plan"].replicas == (2, 8) and started["plan"].gpus == 0.5 and started["stops"] == 0
    options = started["plan"].options
    assert (
        options["autoscaling_config"] | {"min_replicas": 2, "max_replicas": 8, "target_ongoing_requests": 8}
        == (options["autoscaling_config"])
    )
    assert options["ray_actor_options"] == {"num_cpus": 1, "num_gpus": 0.5} and "num_replicas" not in options


def test_it_is_ended_whatever_ends_the_waiting(started):
    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        serve_cli.main(["--device", "cpu"], wait=interrupted)
    assert started["stops"] == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--replicas", "many"], "take a number, or two as 2-8"),
        (["--replicas", "0"], "take at least one"),
        (["--replicas", "3-2"], "no fewer at most than at least"),
        (["--device", "cuda:1"], "is given its own GPU"),
        (["--device", "tpu"], "take auto, cpu, cuda or mps"),
        (["--device", "cpu", "--gpus", "1"], "does not go with --device cpu"),
        (["--gpus", "1.5", "--device", "cuda"], "a part of one (0.5), or whole ones"),
        (["--device", "cpu", "--threads", "0"], "threads is 0"),
        (["--device", "cpu", "--port", "0"], "--port is 0"),
        (["--device", "cpu", "--pairs", "nobody"], "SPECDEC_PAIRS names 'nobody'"),
        (["--device", "cpu", "--host", "0.0.0.0"], "set SPECDEC_ENGINE_TOKEN"),
        (["--device", "cuda", "--split", "tensors"], "layers"),
        (["--device", "cuda", "--split", "layers", "--gpus", "1"], "give --gpus 2"),
    ],
)
def test_serve_refuses_what_cannot_be(options, words, started, monkeypatch):
    monkeypatch.delenv("SPECDEC_ENGINE_TOKEN", raising=False)
    with pytest.raises(SettingsError) as refused:
        serve_cli.main(options, wait=lambda: None)
    assert words in str(refused.value) and "plan" not in started


def test_other_computers_are_let_in_with_a_token(started, monkeypatch):
    monkeypatch.setenv("SPECDEC_ENGINE_TOKEN", "secret")
    assert serve_cli.main(["--device", "cpu", "--host", "0.0.0.0"], wait=lambda: None) == 0
    assert started["plan"].token == "secret"


def test_without_ray_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ModelError, match="pip install -r requirements-cluster.txt"):
        cluster.start(cluster.Plan())


def test_what_a_cluster_does_not_have_is_said_and_not_waited_for():
    plan = cluster.Plan(replicas=(3, 3), gpus=0.5, device="cuda")
    assert cluster._placed(plan, {"GPU": 2.0, "CPU": 8.0}) == plan
    with pytest.raises(SettingsError, match="3 replicas need 1.5 GPUs and the cluster has 1"):
        cluster._placed(plan, {"GPU": 1.0, "CPU": 8.0})
    with pytest.raises(SettingsError, match="need 3 CPUs and the cluster has 2"):
        cluster._placed(cluster.Plan(replicas=(3, 3)), {"CPU": 2.0})
    with pytest.raises(SettingsError, match="shows no GPU"):
        cluster._placed(cluster.Plan(device="cuda"), {"CPU": 2.0})


def test_a_replica_gets_a_gpu_where_there_are_any():
    assert cluster._placed(cluster.Plan(), {"GPU": 4.0, "CPU": 8.0}).gpus == 1.0
    assert (
        cluster._placed(cluster.Plan(), {"CPU": 8.0}).gpus
        == cluster._placed(cluster.Plan(device="cpu"), {"GPU": 4.0, "CPU": 8.0}).gpus
        == 0
    )


def test_a_port_that_is_taken_is_said():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SettingsError, match=f"127.0.0.1:{port}"):
            cluster._require_free("127.0.0.1", port)


def test_replicas_inherit_our_settings_but_neither_the_engine_nor_the_secret():
    own = {"SPECDEC_ENGINE": "http://x", "SPECDEC_ENGINE_TOKEN": "s", "SPECDEC_HOME": "/h", "HOME": "/root", "PYTHONPATH": "/a"}
    found = cluster._environment(own)
    assert found["SPECDEC_HOME"] == "/h" and found["PYTHONPATH"].endswith("/a") and str(cluster.ROOT) in found["PYTHONPATH"]
    assert not {"SPECDEC_ENGINE", "SPECDEC_ENGINE_TOKEN", "HOME"} & set(found)


def test_a_replica_takes_no_more_than_its_queue_and_ends_its_runs_before_it_goes():
    options = cluster.Plan(limits=Limits(at_once=4, queue=6, run_seconds=50)).options
    assert options["max_ongoing_requests"] == 10 + cluster.SPARE and options["graceful_shutdown_timeout_s"] == 60
