"""The counters of a vLLM server, in the shapes in which it gives them; α from what each round accepted."""

from __future__ import annotations

import json

import pytest

from specdec.errors import SettingsError
from specdec.vllm_import import read


def metrics(engines=((100, 300, 150, (80, 50, 20)),), extra=""):
    """A /metrics text as vLLM writes it. engines: (drafts, draft tokens, accepted, accepted by position) of each."""
    names = ("num_drafts", "num_draft_tokens", "num_accepted_tokens")
    lines = [
        "# HELP python_gc_objects_collected_total Objects collected during gc",
        "# TYPE python_gc_objects_collected_total counter",
    ]
    lines += ['python_gc_objects_collected_total{generation="0"} 11033.0']
    for place, name in enumerate(names):
        lines += [f"# HELP vllm:spec_decode_{name}_total Number of.", f"# TYPE vllm:spec_decode_{name}_total counter"]
        for number, engine in enumerate(engines):
            lines.append(f'vllm:spec_decode_{name}_total{{engine="{number}",model_name="Qwen/Qwen3-8B"}} {float(engine[place])}')
        lines += [f"# HELP vllm:spec_decode_{name}_created Number of.", f"# TYPE vllm:spec_decode_{name}_created gauge"]
        lines.append(f'vllm:spec_decode_{name}_created{{engine="0",model_name="Qwen/Qwen3-8B"}} 1.7567367987335e+09')
    base = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
    lines += [f"# HELP {base} Accepted tokens per draft position.", f"# TYPE {base} counter"]
    for number, engine in enumerate(engines):
        for position, count in enumerate(engine[3]):
            lines.append(f'{base}{{engine="{number}",model_name="Qwen/Qwen3-8B",position="{position}"}} {float(count)}')
    return "\n".join(lines) + "\n" + extra


HISTOGRAM = """# HELP vllm:inter_token_latency_seconds Histogram of inter-token latency in seconds.
# TYPE vllm:inter_token_latency_seconds histogram
vllm:inter_token_latency_seconds_bucket{engine="0",le="0.01",model_name="m"} 60.0
vllm:inter_token_latency_seconds_bucket{engine="0",le="0.025",model_name="m"} 90.0
vllm:inter_token_latency_seconds_bucket{engine="0",le="+Inf",model_name="m"} 100.0
vllm:inter_token_latency_seconds_count{engine="0",model_name="m"} 100.0
vllm:inter_token_latency_seconds_sum{engine="0",model_name="m"} 1.1
"""


def test_a_metrics_text():
    found = read(metrics(extra=HISTOGRAM).encode())
    assert (found.rounds, found.drafted, found.accepted, found.reached) == (100, 300, 150, (80, 50, 20))
    assert found.model == "Qwen/Qwen3-8B"
    assert found.utilisation == 0.5  # what vLLM calls acceptance rate
    # 20 rounds rejected the first draft, 30 the second, 30 the third, 20 none: 100 + 80 + 50 judged.
    assert found.accepted_per_round == [20, 30, 30, 20]
    assert found.judged == 20 * 1 + 30 * 2 + 30 * 3 + 20 * 3 == 230 and found.exact
    assert found.acceptance_rate == 150 / 230
    assert found.mean_acceptance_length == 2.5 and found.mean_draft_length == 3.0
    p50, p90, p99 = found.percentiles("between two tokens")
    assert p50 == pytest.approx(0.01 * 50 / 60) and p90 == pytest.approx(0.025) and p99 == 0.025


def test_several_engines_are_one_server():
    found = read(metrics(engines=((100, 300, 150, (80, 50, 20)), (10, 30, 15, (8, 5, 2)))))
    assert (found.rounds, found.drafted, found.accepted, found.reached) == (110, 330, 165, (88, 55, 22))


def test_a_draft_length_that_changed_makes_alpha_a_lower_bound():
    # 100 rounds of which some had fewer than 3 drafts: whether a round that accepted 1 judged another one is not counted.
    found = read(metrics(engines=((100, 250, 150, (80, 50, 20)),)))
    assert not found.exact and found.acceptance_rate == 150 / 230 and found.utilisation == 0.6


def test_two_snapshots_make_a_difference():
    before, after = read(metrics()), read(metrics(engines=((160, 480, 240, (130, 80, 30)),), extra=HISTOGRAM))
    found = after.since(before)
    assert (found.rounds, found.drafted, found.accepted, found.reached) == (60, 180, 90, (50, 30, 10))
    with pytest.raises(SettingsError, match="give the earlier one first"):
        before.since(after)


RESPONSE = {
    "id": "chatcmpl-1",
    "model": "Qwen/Qwen3-8B",
    "choices": [],
    "usage": {"prompt_tokens": 12, "completion_tokens": 53},
    "metrics": {
        "time_to_first_token_ms": 31.0,
        "speculative_decoding": {
            "mean_acceptance_length": 1.2325581395348837,
            "draft_acceptance_rate": 0.07751937984496124,
            "acceptance_histogram": [39, 1, 0, 3],
            "num_spec_steps": 43,
            "num_accepted_draft_tokens": 10,
            "num_draft_tokens": 129,
            "num_spec_tokens": 3,
        },
    },
}


def test_a_response():
    found = read(json.dumps(RESPONSE))
    wanted = RESPONSE["metrics"]["speculative_decoding"]
    assert found.mean_acceptance_length == pytest.approx(wanted["mean_acceptance_length"])
    assert found.utilisation == pytest.approx(wanted["draft_acceptance_rate"])
    assert found.judged == 39 * 1 + 1 * 2 + 3 * 3 and found.exact and found.acceptance_rate == 10 / 50
    assert found.accepted_per_round == [39, 1, 0, 3] and found.responses == 1 and found.model == "Qwen/Qwen3-8B"


def test_draft_lengths_of_their_own_make_alpha_exact():
    varied = json.loads(json.dumps(RESPONSE))
    varied["metrics"]["speculative_decoding"] |= {
        "acceptance_histogram": [2, 3, 0, 1],
        "acceptance_histogram_by_draft_length": {"1": [1, 2], "3": [1, 1, 0, 1]},
        "num_spec_steps": 6,
        "num_accepted_draft_tokens": 6,
        "num_draft_tokens": 12,
    }
    found = read(json.dumps(varied))
    # With one draft: judged 1 each, 3 in all. With three: 1, 2 and 3.
    assert found.exact and found.judged == 3 + 6 and found.acceptance_rate == 6 / 9


@pytest.mark.parametrize("shape", ["list", "lines", "stream"])
def test_many_responses_are_added(shape):
    one = json.dumps(RESPONSE)
    text = {"list": f"[{one},{one}]", "lines": f"{one}\n{one}\n", "stream": f"data: {one}\n\ndata: {one}\n\ndata: [DONE]\n"}[shape]
    found = read(text)
    assert found.responses == 2 and found.rounds == 86 and found.judged == 100 and found.reached == (8, 6, 6)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"\xff\xfe", "is not text"),
        ("  ", "is empty"),
        ("hello, world\n", "no Prometheus text|nothing of vLLM"),
        ("# TYPE up gauge\nup 1\n", "nothing of vLLM"),
        ('vllm:num_requests_running{engine="0"} 3.0\n', "has no vllm:spec_decode_num_drafts: was the server started with"),
        (metrics(engines=((0, 0, 0, (0, 0)),)), "counted no draft yet"),
        (metrics(engines=((100, 300, 150, (80, 50, 10)),)), "150 tokens accepted in all, 140 by position"),
        (metrics(engines=((100, 100, 150, (80, 50, 20)),)), "do not fit together"),
        (metrics().replace(" 300.0", " NaN"), "no Prometheus text"),
        ('{"choices": []}', "no metrics.speculative_decoding"),
        ('{"metrics": {"speculative_decoding": null}}', "no metrics.speculative_decoding"),
        ('{"num_spec_steps": 3}', "of response 1 of the file cannot be read"),
        (json.dumps(RESPONSE).replace("129", '"129"'), "is no count"),
        (json.dumps(RESPONSE).replace("[39, 1, 0, 3]", "[39, 1, 0, 2]"), "does not add up"),
        ("{broken\n", "Line 1 of the file is no JSON"),
    ],
)
def test_a_wrong_file_is_one_sentence(text, words):
    with pytest.raises(SettingsError, match=words) as caught:
        read(text)
    assert "\n" not in str(caught.value)
