"""A GPU with a known law: calibrations and records of runs that follow it."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np

from framekiln.contract.output_names import PROFILE
from framekiln.lab.calibrate.bench import memory_line
from framekiln.lab.predict.gpu_specs import read_gpus
from framekiln.output.object_store import Store
from framekiln.planning.gpu.calibration_file import Calibration, StepFigures, settings_of
from framekiln.planning.plan_options import PlanOptions
from framekiln.planning.sample import Sample
from framekiln.profiling.records import PACKET, Record
from framekiln.runtime.run.record import sealed

RUN, EPOCH = "abc123", 1.7e9
HERE, DEVICE = "rtx-4090", "NVIDIA GeForce RTX 4090"
CALL, ROW, PIXEL = 0.004, 0.002, 0.001  # seconds of a call's model: CALL + n (ROW + PIXEL * megapixels)
UPLOAD, HOST = 0.0005, 0.001  # seconds a row
BATCH, MEGAPIXELS = 8, 1.0
GPUS = read_gpus()
USES = {name: {"use": "tests.toys:Products", "with": {"column": name}} for name in ("big", "twin")}


def facts(name="big"):
    return {"use": "tests.toys:Products", "version": 1, "settings": {"column": name}}


def model_s(batch, megapixels):
    return CALL / batch + ROW + PIXEL * megapixels


def figures(noise=0.0, batches=(1, 2, 4, 8, 16, 32), sizes=(0.5, 2.0), flops=1e11, base=1.0, **more):
    """Return a step's calibration on a GPU that follows the law with relative noise."""
    chance = np.random.default_rng(1)
    trials = []
    for batch in batches:
        for size in sizes:
            factor = float(np.exp(noise * chance.standard_normal()))
            phases = {"infer": factor * model_s(batch, size), "upload": factor * UPLOAD, "postprocess": factor * HOST}
            peak = (base + 0.02 * batch + 0.01 * batch * size) * factor
            trials.append(
                Sample(
                    batch=batch,
                    megapixels=size,
                    calls=5,
                    seconds=batch * sum(phases.values()),
                    phases=phases,
                    peak_gb=peak,
                    reserved_gb=peak,
                )
            )
    told = {"use": facts()["use"], "settings": settings_of(facts()), "precision": "auto", "compile": False}
    told |= {"set_up_s": 1.0, "weights_gb": base, "largest_batch": max(batches), "fastest_batch": max(batches)}
    told |= {"flops_per_row": flops, "weights_bytes": 10**9, "memory": memory_line(trials)}
    return StepFigures(trials=trials, **(told | more))


def calibration(steps, device=DEVICE, kind="cuda"):
    versions = {"framekiln": "0", "torch": "2"}
    return Calibration(device=device, kind=kind, vram_gb=25.0, context_gb=0.5, made="now", steps=steps, **versions)


def output(
    root, steps=("big",), *, device="cuda", decode=0.001, light=0.0, gpus=0.5, rate=None, beside=1.0, batch=BATCH
):
    """Write an output with records of the same law; `rate` is the run's, `beside` a factor of times on the GPU."""
    store = Store(str(root)).of_run(RUN).begin()
    store.prepare()
    packets, rows, cost = 20, 8, int(8 * MEGAPIXELS * 1e6)
    infer, upload = rows * beside * model_s(batch, MEGAPIXELS), rows * beside * UPLOAD
    inside = infer + upload + rows * HOST
    apart = rows / rate if rate else len(steps) * (infer + upload)
    for number in range(packets):
        place = {"unit": "u", "start": rows * number, "stop": rows * (number + 1), "rows": rows, "cost": cost}
        began = EPOCH + number * apart
        took = {"decode": rows * decode}
        records = [
            ("a:1", Record(kind=PACKET, step="decode", started=began, seconds=rows * decode, durations=took, **place))
        ]
        if light:  # in the decode worker
            records.append(("a:1", Record(kind=PACKET, step="light", started=began, seconds=rows * light, **place)))
        for each in steps:
            took = {"infer": infer, "upload": upload, "postprocess": rows * HOST}
            times = {"started": began + 1, "seconds": inside, "durations": took, "device": device}
            records.append((f"a:{each}", Record(kind=PACKET, step=each, **times, **place)))
        for worker, record in records:
            store.append(f"{PROFILE}/calls-{RUN}-{worker.replace(':', '-')}.jsonl", record.line(RUN, worker))
    on_gpu = {"device": "cuda", "batch": batch, "vram_gb": 2.0, "gpus": gpus, "workers": 1}
    profile = {"vram_gb": 7.0, "precision": "auto", "steps": dict.fromkeys(steps, on_gpu if device == "cuda" else {})}
    place = {"device": device, "batch": batch, "precision": "auto", "compile": False, "group": "", "gpus": gpus}
    record = {"run": RUN, "state": "finished", "gpu_names": [DEVICE] if device == "cuda" else []}
    record |= {"folder": "/", "input": "in", "profile": profile, "profile_name": "", "choices": asdict(PlanOptions())}
    record |= {
        "limit": None,
        "shard": None,
        "by_content": False,
        "preview": None,
        "pipeline": {"steps": {name: USES[name] for name in steps}},
    }
    record |= {"steps": {each: facts(each) | {"placement": place} for each in steps}}
    store.write("run.json", json.dumps(sealed(record)).encode())
    return root
