"""One CPU as several machines: a back-test of how `framekiln predict` carries times from one GPU to another.

oneDNN's limit on instructions makes convolutions slower and leaves the memory as it is; two threads make both faster.
So ratios of arithmetic and of bandwidth differ, as they do among GPUs. In the place of a data sheet stand the rates of
a convolution and of a copy. All times are of the processor, since a busy machine gives no others; those of two threads
are halved. The width of the interval is that of `manifests/ceilings.yaml`, and nothing here changes it: one half of the
cases tells which width would have held nine of ten, the other half how many the actual one holds.

    python -m benchmarks.cpu_machines --out cpu_machines.json
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path
from typing import Any

from framekiln.device import count_call, made_weights, torch
from framekiln.lab.measure.prepared import example_inputs, run
from framekiln.lab.models.registry import find_model
from framekiln.lab.output.cells import Cell
from framekiln.lab.predict.gpu_specs import GpuSpecs, read_gpus
from framekiln.lab.predict.pace import Interval
from framekiln.lab.predict.reached import MeasuredStep, usual_share
from framekiln.lab.predict.work import GpuWork, NetworkWork
from framekiln.planning.manifest import read_pipeline

MACHINES = {
    f"{threads} x {isa}": {
        "OMP_NUM_THREADS": str(threads),
        "OMP_WAIT_POLICY": "passive",
        "ONEDNN_MAX_CPU_ISA": limit,
        "ATEN_CPU_CAPABILITY": aten,
    }
    for threads in (1, 2)
    for isa, limit, aten in (
        ("SSE4", "SSE41", "default"),
        ("AVX2", "AVX2", "avx2"),
        ("AVX-512", "AVX512_CORE", "avx512"),
    )
}
SIZES = {"mobilefacenet": None, "arcface-r50": None, "arcface-r100": None, "raft-small": 128, "lama": 128}
CHOSEN = ("mobilefacenet", "arcface-r50")  # whose cases on one core would choose a width
_HELD = 0.9  # share of cases that an interval promises


def main() -> None:
    """Measure all machines in turns, and print each case with its interval."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("cpu_machines.json"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--measure", action="store_true", help="measure this process's machine, as a child does")
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure()))
        return
    found: dict[str, dict[str, float]] = json.loads(options.out.read_text()) if options.out.exists() else {}
    for _ in range(options.rounds):
        for machine, environment in MACHINES.items():
            command = [sys.executable, "-m", "benchmarks.cpu_machines", "--measure"]
            done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=True)
            before = found.get(machine, {})
            figures = json.loads(done.stdout).items()
            found[machine] = {name: min(value, before.get(name, value)) for name, value in figures}
            options.out.write_text(json.dumps(found, indent=1))
    report(found)


def measure() -> dict[str, float]:
    """Return seconds of each model's call, and of a convolution and a copy, on this process's machine."""
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    layer, image = torch.nn.Conv2d(256, 256, 3, padding=1), torch.randn(4, 256, 56, 56)
    source, target = torch.randn(32_000_000), torch.empty(32_000_000)
    with torch.inference_mode():
        found = {"conv": best(lambda: layer(image), 4), "copy": best(lambda: target.copy_(source), 6)}
        for name in SIZES:
            module, inputs, _ = model(name)
            found[name] = best(lambda module=module, inputs=inputs: run(module, inputs), 3)  # type: ignore[misc]
    return found


def best(call: Callable[[], Any], times: int) -> float:
    """Return the least processor time of a call, divided by the threads."""
    threads = int(os.environ["OMP_NUM_THREADS"])
    taken = []
    for _ in range(times + 1):  # the first one prepares its kernels
        began = time.process_time()
        call()
        taken.append((time.process_time() - began) / threads)
    return min(taken[1:])


def model(name: str) -> tuple[Any, Any, GpuWork]:
    """Return a model with random weights, inputs of one row, and its counted work."""
    recipe: Any = find_model(name, read_pipeline(None))
    with made_weights():
        built = replace(recipe.factory, weights=None).build()
    inputs = example_inputs(built, Cell(batch=1, size=SIZES[name]))
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)

    def first(*given: Any) -> Any:
        result = run(built.module, given if len(given) > 1 else given[0])
        while not isinstance(result, torch.Tensor):
            result = result[-1]
        return result

    call = replace(count_call(first, inputs), rows=1)
    return built.module, inputs if len(inputs) > 1 else inputs[0], GpuWork(networks=[NetworkWork(rows=1.0, call=call)])


def report(found: dict[str, dict[str, float]]) -> None:
    """Print the width that one half would choose, what the actual one holds of each half, and what it does not."""
    known = list(cases(found))
    widths = sorted(case.needed for case in known if case.is_chosen)
    share = usual_share()
    print(f"width for {_HELD:.0%} of {len(widths)}: {widths[int(_HELD * len(widths))]:.2f}")
    print(f"width of the ceilings: {share.high / share.central:.2f}")
    for title, half in halves(known).items():
        print(f"{title}: {sum(case.is_held for case in half)} of {len(half)} held")
    for case in known:
        if not case.is_held:
            ends = f"{1e3 * case.predicted.low:.1f} to {1e3 * case.predicted.high:.1f} ms"
            print(f"outside: {case.title}, {ends}, measured {1e3 * case.seconds:.1f}")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model's time on one machine, from that on another."""

    title: str
    is_chosen: bool  # one of those that would choose a width
    is_alike: bool  # both machines have one core
    predicted: Interval
    seconds: float  # measured
    bound: float
    needed: float  # width that would hold it

    @property
    def is_held(self) -> bool:
        """True if the measured time is within the interval."""
        return self.predicted.low <= self.seconds <= self.predicted.high


def halves(known: list[Case]) -> dict[str, list[Case]]:
    """Return the cases that would choose a width, and those that were kept aside."""
    return {
        "the choosing half": [case for case in known if case.is_chosen],
        "other models, one core": [case for case in known if case.is_alike and not case.is_chosen],
        "all models, from or to two cores": [case for case in known if not case.is_alike],
    }


def cases(found: dict[str, dict[str, float]]) -> Iterator[Case]:
    """Yield each model from each machine to each other one."""
    works = {name: model(name)[2] for name in SIZES}
    machines = {name: machine_specs(figures) for name, figures in found.items()}
    usual = usual_share()
    width = usual.high / usual.central
    for here, there in permutations(machines, 2):
        for name, work in works.items():
            step = MeasuredStep(gpu=machines[here], seconds={1: found[here][name]})
            predicted, seconds = step.on(machines[there], work, 1), found[there][name]
            is_alike = here.startswith("1") and there.startswith("1")
            yield Case(
                title=f"{name}, {here} to {there}",
                is_chosen=is_alike and name in CHOSEN,
                is_alike=is_alike,
                predicted=predicted,
                seconds=seconds,
                bound=float(work.bound(machines[there], 1).max()),
                needed=max(predicted.low * width / seconds, seconds * width / predicted.high),
            )


def machine_specs(figures: dict[str, float]) -> GpuSpecs:
    """Return a machine's measured rates in the place of a data sheet."""
    tflops = 2 * 4 * 256 * 256 * 9 * 56 * 56 / figures["conv"] / 1e12
    rates = {f"{precision}_tflops": tflops for precision in ("fp32", "fp16", "bf16")}
    return read_gpus()["t4"].model_copy(update={**rates, "bandwidth_gb_s": 2 * 4 * 32e6 / figures["copy"] / 1e9})


if __name__ == "__main__":
    main()
