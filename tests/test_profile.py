"""Figures and verdicts from records that were made up, so that the truth is known."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.cli import main
from pipeline.errors import ConfigError
from pipeline.machines import ROOMY
from pipeline.manifest import ProfileFile, Targets, read_pipeline, read_profile
from pipeline.plan import Choices, make_plan
from pipeline.storage import Store
from pipeline.telemetry import nodes
from pipeline.telemetry.measures import measure, steady_rate
from pipeline.telemetry.profiles import gathered, profile_of, targets_of
from pipeline.telemetry.records import CALL, HAND_ON, PACKET, SET_UP, Record, to_table
from pipeline.telemetry.report import write_report
from pipeline.telemetry.streams import FOLDER
from pipeline.telemetry.targets import Cards, judged
from pipeline.telemetry.verdict import verdict
from tests.collections_factory import photo
from tests.report_factory import output

LOOP = 10.0  # seconds from one packet of a process to its next


class Made:
    """Records of a run: each step has a process, and a packet in each loop."""

    def __init__(self):
        self.lines = []

    def add(self, worker, **facts):
        self.lines.append(json.loads(Record(**facts).line("0", worker)))

    def step(self, name, busy, wait=0.0, seal=0.0, packets=6, worker=None, **facts):
        """A step that works `busy` seconds of each loop."""
        phases, worker = facts.pop("phases", {"infer": busy}), worker or f"h:{name}"
        self.add(worker, kind=SET_UP, step=name, started=facts.get("at", 0.0) - 1.0, seconds=facts.pop("set_up", 0.5))
        for i in range(packets):
            place = {"unit": facts.get("unit", "u"), "start": 10 * i, "stop": 10 * i + 10, "step": name}
            about = place | {"device": facts.get("device", "cpu"), "rows": 10, "cost": 1000, "seconds": busy}
            begin = LOOP * i + facts.get("at", 0.0)
            memory = (1.0, 2.0, 1.0 + i) if facts.get("device") == "cuda" else None
            durations = phases | {"wait": wait if i else 99.0}
            self.add(worker, kind=PACKET, started=begin, durations=durations, memory=memory, **about)
            if name != "decode":
                self.add(worker, kind=CALL, started=begin, durations=phases, memory=memory, **about)
            self.add(worker, kind=HAND_ON, started=begin + busy, durations={"seal": seal}, unit="u", step=name)
        return self

    def measured(self, nodes=None):
        return {one.step: one for one in measure(to_table(self.lines), nodes)}

    def verdict(self):
        return verdict(measure(to_table(self.lines)))


def test_figures_of_a_step():
    found = Made().step("decode", 9.0, seal=1.0).step("faces", 4.0, wait=6.0, device="cuda").measured()
    span = 5 * LOOP + 4.0
    faces = found["faces"]
    assert (faces.rows, faces.packets, faces.calls, len(faces.workers)) == (60, 6, 6, 1)
    assert faces.busy == faces.process_busy == pytest.approx(24 / span)
    assert faces.starved == pytest.approx(5 * 6 / span)  # the first wait is start-up
    assert faces.rows_per_s == pytest.approx(60 / span)
    assert faces.steady_rows_per_s == pytest.approx(30 / (3 * LOOP))  # from the second packet's end to the fifth's
    assert faces.call_ms == pytest.approx((4000,) * 3) and faces.row_ms == pytest.approx((400,) * 3)
    assert faces.phases == pytest.approx({"infer": 1.0, "other": 0.0})
    assert faces.vram_peak_gb == 6.0 and faces.set_up_s == 0.5 and faces.gpu_use is None
    decode = found["decode"]
    assert decode.held == pytest.approx(5 / (5 * LOOP + 9.0)) and decode.vram_peak_gb is None
    assert decode.calls == 6 and decode.call_ms == pytest.approx((9000,) * 3)


def test_steps_of_one_process_share_its_waiting_but_not_their_work():
    made = Made().step("decode", 3.0, worker="h:1", wait=1.0).step("light", 5.0, worker="h:1", at=3.0)
    found = made.measured()
    assert found["light"].beside_decode and not found["decode"].beside_decode
    assert found["light"].busy == pytest.approx(30 / 55)
    assert found["light"].process_busy == pytest.approx((30 + 15) / 55)
    assert found["light"].starved == pytest.approx(5 / 55)


@given(st.lists(st.integers(1, 50), min_size=5, max_size=40), st.floats(0.1, 20))
@settings(deadline=None)
def test_a_steady_process_has_its_own_rate_whatever_its_packets(sizes, rate):
    import numpy as np

    rows = np.array(sizes, float)
    found = steady_rate(np.cumsum(rows) / rate, rows)
    assert found is None or found == pytest.approx(rate)
    slow_start = steady_rate(np.concatenate([[0.0], 1e6 + np.cumsum(rows) / rate]), np.concatenate([[1e-9], rows]))
    assert slow_start is None or slow_start == pytest.approx(rate, rel=1e-3)


def test_too_few_packets_have_no_steady_rate():
    assert Made().step("a", 1.0, packets=4).measured()["a"].steady_rows_per_s is None


GPU = {"device": "cuda"}
UNKNOWN = {"use_percent": None}
VERDICTS = {
    "nothing": (Made(), "too-short", "", "more files"),
    "three packets": (Made().step("decode", 9.0, packets=3), "too-short", "", "more files"),
    "set-up": (Made().step("decode", 9.0).step("faces", 1.0, set_up=80.0), "start-up", "faces", "more files"),
    "set-up is long but the run is longer": (Made().step("decode", 9.0, set_up=50.0), "busy", "decode", ""),
    "second pass": (
        Made().step("decode", 0.5).step("identities", 15.0, unit="all.parquet"),
        "later",
        "identities",
        "raise identities's workers",
    ),
    "second pass that is short": (
        Made().step("decode", 9.0).step("identities", 1.0, packets=1, unit="all.parquet"),
        "busy",
        "decode",
        "",
    ),
    "decode": (
        Made().step("decode", 9.7).step("faces", 3.0, wait=6.2, **GPU),
        "busy",
        "decode",
        "raise decode's workers, or lower its cost with smaller pictures such as frame_1024",
    ),
    "model": (Made().step("decode", 2.0, seal=8.0).step("faces", 9.9, **GPU), "busy", "faces", "raise its batch"),
    "postprocess": (
        Made().step("decode", 2.0).step("faces", 9.0, phases={"infer": 2.0, "postprocess": 7.0}, **GPU),
        "busy",
        "faces",
        "one more worker",
    ),
    "copies": (
        Made().step("faces", 9.0, phases={"infer": 2.0, "upload": 7.0}, **GPU),
        "busy",
        "faces",
        "pin_memory: true",
    ),
    "disk": (Made().step("faces", 9.0, phases={"infer": 2.0, "write": 7.0}, **GPU), "busy", "faces", "faster disk"),
    "processor": (Made().step("decode", 2.0).step("pose", 9.0), "busy", "pose", "raise pose's workers"),
    "beside decode": (
        Made().step("decode", 2.0, worker="h:1").step("light", 7.5, worker="h:1", at=2.0),
        "busy",
        "light",
        "raise decode's workers, whose processes it shares",
    ),
    "held": (Made().step("decode", 4.0, seal=5.5).step("faces", 5.0, **GPU), "held", "decode", "object store"),
    "idle": (Made().step("decode", 4.0).step("faces", 5.0, wait=4.0, **GPU), "idle", "", "more files at once"),
}


@pytest.mark.parametrize("name", VERDICTS)
def test_verdicts(name):
    made, rule, step, change = VERDICTS[name]
    found = made.verdict()
    assert (found.rule, found.step) == (rule, step), str(found)
    assert change in found.change


def test_a_verdict_says_who_waits_for_whom():
    found = Made().step("decode", 9.7).step("faces", 3.0, wait=6.2, **GPU).verdict()
    assert "faces waits 58 % of its time for input while decode is busy 97 % of its time: raise decode's" in str(found)


def test_a_verdict_lays_nothing_on_a_later_step_but_that_packets_are_not_taken():
    """Ray gives an early step no input while a late one is slow, which is not what that step waits for."""
    slow = {"at": 1.0, **GPU}
    assert str(Made().step("decode", 3.0, wait=6.2).step("faces", 9.7, **slow).verdict()).startswith(
        "faces is busy 97 %"
    )
    stuck = Made().step("decode", 3.0, seal=6.2).step("faces", 9.7, **slow).verdict()
    assert str(stuck).startswith("decode spends 58 % of its time handing packets on while faces is busy 97 %")


def kept(store, made):
    """The records as the process of each step left them."""
    lines = b"".join(json.dumps(line | {"run": store.run}).encode() + b"\n" for line in made.lines)
    store.append(f"{FOLDER}/calls-{store.run}-h-1.jsonl", lines)


@pytest.fixture
def store(tmp_path):
    found = Store(str(tmp_path / "out")).of_run("abc123")
    found.prepare()
    return found


def test_the_command_tells_of_a_run_that_goes_on_and_of_one_that_has_ended(store, capsys):
    kept(store, Made().step("decode", 9.7).step("faces", 3.0, wait=6.2, **GPU))
    shown = []
    for _ in range(2):
        with pytest.raises(SystemExit) as end:
            main(["profile", store.root, "--json"])
        assert end.value.code == 0
        shown.append(json.loads(capsys.readouterr().out))
        gathered(store, ["abc123"])
    assert shown[0] == shown[1]
    assert shown[0]["verdict"]["step"] == "decode" and shown[0]["steps"]["faces"]["starved"] == 0.5849
    with pytest.raises(SystemExit):
        main(["profile", store.root, "--workers"])
    said = capsys.readouterr().out
    assert "h:faces" in said and "faces waits 58 % of its time for input while decode is busy 97 %" in said


def test_the_run_that_began_last_is_told_of_unless_another_is_named(store, capsys):
    kept(store, Made().step("decode", 9.0))
    later = Made().step("decode", 9.0)
    kept(Store(store.root).of_run("bbb"), Made().step("decode", 5.0, at=1000.0))
    kept(Store(store.root).of_run("ccc"), later)
    for words, run in ([], "bbb"), (["--run", "ccc"], "ccc"):
        with pytest.raises(SystemExit):
            main(["profile", store.root, "--json", *words])
        assert json.loads(capsys.readouterr().out)["run"] == run


@pytest.mark.parametrize(
    ("words", "said"), [([], "no records of a run in"), (["--run", "abd123"], "no records of a run")]
)
def test_mistakes_are_one_sentence(store, capsys, words, said):
    if words:
        kept(store, Made().step("decode", 9.0))
    with pytest.raises(SystemExit) as end:
        main(["profile", store.root, *words])
    told = capsys.readouterr().err
    assert end.value.code == 2 and said in told and told.count("\n") == 1


def test_the_report_shows_what_the_records_say(tmp_path, store):
    photo(tmp_path / "in" / "a.png", 1)
    kept(store, Made().step("decode", 9.7).step("marked", 3.0, wait=6.2))
    out = output(tmp_path / "in", store.root, throughput=profile_of(store, "abc123").to_dict())
    write_report(out)
    page = " ".join(re.sub(r"<[^>]*>", " ", out.read("report.html").decode()).split())
    assert "The bottleneck is decode. marked waits 58 % of its time for input" in page
    assert "97% / 0% / 0%" in page


def test_gpu_use_is_of_the_samples_within_calls():
    card = {"use_percent": 90.0, "total_gb": 80.0}
    calls = Made().step("faces", 4.0, **GPU)
    samples = [
        {
            "run": "0",
            "node": "h",
            "time": LOOP * i + offset,
            "gpus": [card | {"use_percent": use}, {"use_percent": None}],
        }
        for i in range(6)
        for offset, use in ((1.0, 70.0), (3.9, 90.0), (4.1, 5.0), (9.0, 0.0))
    ]
    other = [
        {"run": "0", "node": "else", "time": 1.0, "gpus": [card]},
        {"run": "0", "node": "h", "time": 1.5, "gpus": []},
    ]
    assert calls.measured(nodes.to_table([*samples, *other]))["faces"].gpu_use == pytest.approx(0.8)
    full = Made().step("faces", 9.9, **GPU)
    table = nodes.to_table([sample | {"gpus": [card]} for sample in samples])
    assert "this one is full" in verdict(measure(to_table(full.lines), table)).change


def test_a_machine_is_read(tmp_path):
    import os
    import subprocess
    import sys

    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as child:
        machine = nodes.Machine("0", os.getpid())
        first = json.loads(nodes.to_line(machine.read()))
        (tmp_path / "file").write_bytes(bytes(1 << 20))
        table = nodes.to_table([json.loads(nodes.to_line(machine.read(0.5))), first])
        child.kill()
    assert table.schema.equals(nodes.SCHEMA, check_metadata=True)
    early, late = table.to_pylist()
    assert early["time"] < late["time"] and late["store_gb"] == 0.5 and early["store_gb"] is None
    assert dict(late["workers_gb"])[child.pid] > 0 and 0 <= late["cpu_percent"] <= 100 and late["memory_gb"] > 0
    assert early["net_in_mb_s"] is None


AIMS = {
    "a number is the least": ({"rows_per_minute": 59}, "met"),
    "which is not reached": ({"rows_per_minute": 61}, "not met"),
    "more than a range is no harm": ({"rows_per_minute": [10, 20]}, "met"),
    "less than a range is": ({"rows_per_minute": [70, 80]}, "not met"),
    "a rate may have a limit alone": ({"rows_per_minute": [None, 20]}, "not met"),
    "of times a number is the most": ({"call_p95_ms": 4001}, "met"),
    "which is exceeded": ({"call_p95_ms": 3999}, "not met"),
    "nobody looked": ({"gpu_use_percent": [80, 95]}, "not measured"),
}


@pytest.mark.parametrize("name", AIMS)
def test_targets_of_a_step(name):
    said, verdict_ = AIMS[name]
    steps = measure(to_table(Made().step("faces", 4.0, **GPU).lines))  # 60 rows a minute
    (found,) = judged(Targets.model_validate({"steps": {"faces": said}}), Cards(), steps)
    assert (found.figure, found.verdict) == (f"faces.{next(iter(said))}", verdict_)


@pytest.mark.parametrize(
    ("use", "memory", "met"), [(85.0, 60.0, "met met"), (97.0, 60.0, "not met met"), (85.0, 79.0, "met not met")]
)
def test_targets_of_the_cards(use, memory, met):
    card = {"use_percent": use, "memory_gb": memory, "total_gb": 80.0}
    calls = to_table(Made().step("faces", 4.0, **GPU).lines)
    cards = Cards.of(calls, nodes.to_table([{"run": "0", "node": "h", "time": 1.0, "gpus": [card]}]))
    aims = Targets.model_validate({"gpu_use_percent": [80, 95], "vram_peak_percent": 90, "steps": {"absent": {}}})
    assert " ".join(one.verdict for one in judged(aims, cards, measure(calls))) == met


WRONG = {
    "targets: {gpu_use_pecent: 80}": "unknown key 'gpu_use_pecent' in targets. Did you mean 'gpu_use_percent'",
    "targets: {steps: {faces: {rows_per_minut: 1}}}": "Did you mean 'rows_per_minute'",
    "targets: {gpu_use_percent: [95, 80]}": "must be a number, or",
    "targets: {gpu_use_percent: lots}": "must be a number, or",
    "targets: {gpu_use_percent: [null, null]}": "must be a number, or",
    "targets: {gpu_use_percent: -1}": "must be a number, or",
    "targets: {gpu_use_percent: true}": "must be a number, or",
}


@pytest.mark.parametrize("text", WRONG)
def test_mistakes_in_targets(tmp_path, text):
    (tmp_path / "p.yaml").write_text(text)
    with pytest.raises(ConfigError, match=WRONG[text]):
        read_profile(str(tmp_path / "p.yaml"))


def test_targets_of_a_step_that_nobody_has_are_refused(tmp_path):
    aims = ProfileFile.model_validate({"targets": {"steps": {"facs": {"rows_per_minute": 1}}}})
    with pytest.raises(
        ConfigError, match="has targets for a step 'facs' that the pipeline does not have. Did you mean"
    ):
        make_plan(read_pipeline(None), aims, Choices(), [ROOMY], check_weights=False)
    shipped = read_profile("high-throughput").targets
    kept = json.loads(json.dumps({"profile": {"targets": shipped.model_dump(exclude_none=True)}}))
    assert targets_of(kept) == shipped and shipped.steps["segment"].rows_per_minute == (10, 20)


def test_cards_that_answer_half_of_the_questions_are_told_of_by_the_rest():
    class Half:
        """A driver as on a card without a power sensor."""

        NVML_TEMPERATURE_GPU = 0

        def __init__(self):
            memory, use = SimpleNamespace(used=4e9, total=16e9), SimpleNamespace(gpu=83)
            self.nvmlInit, self.nvmlDeviceGetCount = lambda: None, lambda: 2
            self.nvmlDeviceGetHandleByIndex = lambda i: i
            self.nvmlDeviceGetUtilizationRates, self.nvmlDeviceGetMemoryInfo = lambda _: use, lambda _: memory
            process = SimpleNamespace(pid=7, usedGpuMemory=3e9)
            self.nvmlDeviceGetComputeRunningProcesses = lambda _: [process, SimpleNamespace(pid=8, usedGpuMemory=None)]

    sample = json.loads(nodes.to_line(nodes.Machine("0", nvml=Half()).read()))
    (row,) = nodes.to_table([sample]).to_pylist()
    known = {"use_percent": 83.0, "memory_gb": 4.0, "total_gb": 16.0, "power_w": None, "temperature_c": None}
    assert row["gpus"] == [known] * 2 and dict(row["gpu_processes_gb"]) == {7: 6.0, 8: 0.0}
