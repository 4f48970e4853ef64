"""Several machines behind one address: replicas of `specdec.endpoint` under Ray Serve, each with an engine of its own.

Serve hands a request to the replica that has fewest, prefers one that has loaded the pair (whose name is the id of a multiplexed
model), starts more of them when they have much to do, replaces those that hang or die, and lets runs end before it takes a
replica away.
There is no second loop, and no queue but that of each engine.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from specdec.errors import ModelError, SettingsError
from specdec.jobs import Limits

ROOT = Path(__file__).resolve().parents[1]
NAME = "specdec"  # of the application and of its deployment
SPARE = 16  # requests that a replica answers beside its runs: what it is, how a text is cut
LOOK_SECONDS = 3.0  # between two questions whether a replica is well
HUNG_SECONDS = 12.0  # without an answer to that, after which it is replaced
# Of Serve, through the environment of its processes. It remembers for ten seconds how much each replica has to do; one that hangs
# would look idle and be given the same run again. And it gives up its own front door when that is not open within five seconds.
SERVE = {"RAY_SERVE_QUEUE_LENGTH_CACHE_TIMEOUT_S": "1", "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60"}
LOAD_SECONDS = 3600.0  # a large pair has to be fetched first
DOOR_SECONDS = 600.0  # that the address may take to answer
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to start. replicas: fewest and most. gpus: of one replica, also a part of one; 0 for the CPU, None for a whole one where
    the cluster has any. threads: of one replica on the CPU. busy: runs of one replica from which on another one is wanted. device,
    dtype, split: see `specdec.models.load_pair`."""

    replicas: tuple[int, int] = (1, 1)
    pairs: tuple[str, ...] = ("embedded",)
    device: str = "auto"
    dtype: str = "auto"
    split: str = ""
    gpus: float | None = None
    threads: int = 1
    busy: int = 8
    limits: Limits = Limits()
    token: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        least, most = self.replicas
        if not 1 <= least <= most <= 1000:
            raise SettingsError(f"replicas are {least} to {most}: take at least one, and no fewer at most than at least.")
        if self.gpus is not None and (not 0 <= self.gpus <= 64 or (self.gpus > 1 and self.gpus != int(self.gpus))):
            raise SettingsError(f"gpus is {self.gpus:g}: take a part of one (0.5), or whole ones.")
        if not 1 <= self.threads <= 1024:
            raise SettingsError(f"threads is {self.threads}: take a whole number from 1 to 1024.")

    @property
    def options(self) -> dict[str, Any]:
        """Of the Serve deployment."""
        least, most = self.replicas
        held = self.limits.at_once + self.limits.queue
        known: dict[str, Any] = {
            "name": NAME,
            "max_ongoing_requests": held + SPARE,
            "max_queued_requests": held * most,
            "health_check_period_s": LOOK_SECONDS,
            "health_check_timeout_s": HUNG_SECONDS,
            # A replica that is to go takes no new runs and ends those that it has, however long one may take.
            "graceful_shutdown_timeout_s": self.limits.run_seconds + 10,
            "graceful_shutdown_wait_loop_s": 0.5,
            "ray_actor_options": {"num_cpus": 1 if self.gpus else self.threads, "num_gpus": self.gpus or 0},
        }
        if least == most:
            return known | {"num_replicas": least}
        scaling = {"min_replicas": least, "max_replicas": most, "target_ongoing_requests": self.busy}
        return known | {"autoscaling_config": scaling | {"upscale_delay_s": 10, "downscale_delay_s": 600}}


def needs_ray() -> Any:
    """The package ray with Serve. Raises ModelError with what to install."""
    try:
        import ray
        from ray import serve  # noqa: F401
    except ImportError as error:
        raise ModelError(
            f"Several machines need Ray Serve, which cannot be imported here ({error.name or error}): "
            "pip install -r requirements-cluster.txt."
        ) from None
    return ray


class Machine:
    """One replica: an engine, and what it answers. Made in a process of its own by Serve."""

    def __init__(self, plan: Plan) -> None:
        from specdec.endpoint import Endpoint
        from specdec.engine import Engine, load

        if not plan.gpus:
            import torch

            torch.set_num_threads(plan.threads)
        os.environ["SPECDEC_PAIRS"] = ",".join(plan.pairs)  # the loader asks for it
        self.engine = Engine(partial(load, device=plan.device, dtype=plan.dtype, split=plan.split), limits=plan.limits)
        self.endpoint = Endpoint(self.engine, pairs=plan.pairs, token=plan.token)
        self.engine.preload(plan.pairs[0])
        end = time.monotonic() + LOAD_SECONDS
        while self.engine.state in ("empty", "loading"):
            if time.monotonic() > end:
                raise ModelError(f"{plan.pairs[0]} was not loaded within {LOAD_SECONDS:.0f} s.")
            time.sleep(0.1)
        if self.engine.state == "failed":
            raise ModelError(self.engine.message)

    def check_health(self) -> None:
        """Asked by Serve again and again; whoever raises is replaced."""
        if self.endpoint.hung:
            raise RuntimeError(self.endpoint.hung)

    async def answer(self, request: Any) -> Any:
        return await self.endpoint.answer(request)


def application(plan: Plan) -> Any:
    """The Serve application for `serve.run`."""
    needs_ray()
    from ray import serve
    from starlette.requests import Request

    class Replica(Machine):
        @serve.multiplexed(max_num_models_per_replica=1)
        async def holds(self, name: str) -> str:
            """Tells Serve that runs for this pair are welcome here; the engine loads it when its turn comes."""
            return name

        async def check_health(self) -> None:
            super().check_health()
            if self.engine.state == "ready" and not self.engine.queue_length:
                await self.holds(self.engine.pair_name)

        async def __call__(self, request: Request) -> Any:
            if (name := serve.get_multiplexed_model_id()) in self.endpoint.pairs:
                await self.holds(name)
            return await self.answer(request)

        async def __del__(self) -> None:
            await asyncio.to_thread(self.engine.close)

    return serve.deployment(**plan.options)(Replica).bind(plan)


def start(plan: Plan, *, address: str | None = None, host: str = "127.0.0.1", port: int = 8000, cpus: int | None = None) -> str:
    """Start or join Ray, start (or replace, run by run) the application; returns its address once a replica is ready.

    address: of a running Ray cluster ("auto" for the one of this machine), None for one that begins and ends with this process.
    Raises SpecdecError for what cannot be had.
    """
    ray = needs_ray()
    from ray import serve

    if not ray.is_initialized():
        if not address:
            _require_free(host, port)
        for name, value in ({"RAY_USAGE_STATS_ENABLED": "0"} | SERVE).items():
            os.environ.setdefault(name, value)
        kind: dict[str, Any] = {"address": address} if address else {"include_dashboard": False, "num_cpus": cpus}
        if not address:
            kind["_node_ip_address"] = "127.0.0.1"
        try:
            ray.init(**kind, log_to_driver=False, logging_level="warning", runtime_env={"env_vars": _environment(os.environ)})
        except (ConnectionError, ValueError, RuntimeError) as error:
            said = " ".join(str(error).split())[:200]
            raise ModelError(f"Ray does not start or answer ({said}): check --address, or leave it out.") from None
    plan = _placed(plan, ray.cluster_resources())
    try:
        serve.start(http_options={"host": host, "port": port})
    except TimeoutError:  # after a minute, which a busy machine may need for its front door; it is being opened all the same
        serve.start(http_options={"host": host, "port": port})
    try:
        serve.run(application(plan), name=NAME, route_prefix="/")
    except RuntimeError as error:
        raise ModelError(_why(error)) from None
    if not address:  # elsewhere the front doors may be on other machines
        _wait_for(host, port)
    return f"http://{host}:{port}"


def _wait_for(host: str, port: int) -> None:
    """Until somebody listens there."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    end = time.monotonic() + DOOR_SECONDS
    while True:
        try:
            socket.create_connection((host, port), timeout=1.0).close()
        except OSError as error:
            if time.monotonic() > end:
                raise ModelError(
                    f"Nobody answers at {host}:{port} after {DOOR_SECONDS:.0f} s ({error}): see what `serve status` says."
                ) from None
            time.sleep(0.2)
        else:
            return


def stop() -> None:
    """End the application and, where it is our own, Ray."""
    import ray
    from ray import serve

    serve.shutdown()
    ray.shutdown()


def _require_free(host: str, port: int) -> None:
    """Serve would try again and again."""
    try:
        with socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET):
            pass
    except OSError as error:
        raise SettingsError(f"Nothing can listen at {host}:{port} ({error.strerror}): take another --port or --host.") from None


def _why(error: BaseException) -> str:
    """Our own sentence, which Serve wraps in a good deal of its own, where there is one."""
    from ray import serve

    said = [str(error)]
    if (app := serve.status().applications.get(NAME)) is not None:
        said += [app.message, *(one.message for one in app.deployments.values())]
    for text in said:
        if found := re.search(r"(?:ModelError|PairError|SettingsError): ([^\n]+)", text or ""):
            return found[1].strip()
    return f"The replicas do not start ({' '.join(str(error).split())[:200]}): see what `serve status` says."


def _placed(plan: Plan, there: Mapping[str, float]) -> Plan:
    """`plan` with the GPUs that it is to have. Serve waits for ever for what a cluster does not have: SettingsError instead."""
    if plan.gpus is None:
        plan = replace(plan, gpus=1.0 if plan.device != "cpu" and there.get("GPU", 0.0) >= 1 else 0.0)
    if plan.device == "cuda" and not plan.gpus:
        raise SettingsError("device is 'cuda' and the cluster shows no GPU: take --device cpu, or name GPUs when Ray is started.")
    for name, each in (("GPU", plan.gpus), ("CPU", 1 if plan.gpus else plan.threads)):
        if (wanted := each * plan.replicas[0]) > (found := there.get(name, 0.0)):
            raise SettingsError(
                f"{plan.replicas[0]} replicas need {wanted:g} {name}s and the cluster has {found:g}: take fewer replicas, or a "
                f"smaller part of a {name} for each."
            )
    return plan


def _environment(own: Mapping[str, str]) -> dict[str, str]:
    """What the processes of replicas inherit: where this package lies, and our own settings but those that name an engine."""
    ours = {name: value for name, value in own.items() if name.startswith(("SPECDEC_", "HF_")) and name != "SPECDEC_ENGINE"}
    ours.pop("SPECDEC_ENGINE_TOKEN", None)
    path = os.pathsep.join([str(ROOT), *filter(None, own.get("PYTHONPATH", "").split(os.pathsep))])
    return ours | SERVE | {"PYTHONPATH": path, "OMP_WAIT_POLICY": own.get("OMP_WAIT_POLICY", "PASSIVE")}
