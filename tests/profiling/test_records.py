"""Records survive their process, add up to the run, and are read whole or torn."""

from __future__ import annotations

import time

import pytest

from framekiln.contract.errors import OutputError
from framekiln.contract.output_names import PROFILE
from framekiln.contract.phases import PhaseClock
from framekiln.device.timing import EventClock
from framekiln.job import Job
from framekiln.output.object_store import Store
from framekiln.profiling.record_log import CALLS, NODES, Stream, gather, read, runs
from framekiln.profiling.records import CALL, DURATIONS, HAND_ON, PACKET, SCHEMA, Record
from framekiln.profiling.step_work import Recorder, StepWork
from tests.support.machine.buckets import empty_bucket
from tests.support.media.collections_factory import clip, photo
from tests.support.runs.engine_factory import ALL, order
from tests.toys import Checksum

RUN = "0123456789ab"


def write(store, names, worker="host:7"):
    stream = Stream(store, CALLS, worker)
    for i, name in enumerate(names):
        record = Record(kind=PACKET, step=name, started=float(i), seconds=0.5, rows=3, durations={"infer": 0.25})
        stream.add(lambda record=record: record.line(RUN, worker))
    stream.flush(now=True)
    return stream


@pytest.fixture
def store(tmp_path):
    new_store = Store(str(tmp_path)).of_run(RUN).begin()
    new_store.prepare()
    return new_store


@pytest.fixture
def bucket():
    return empty_bucket()[0].of_run(RUN).begin()


@pytest.mark.parametrize("kind", ["store", "bucket"])
def test_streams_are_read_before_and_after_they_are_gathered(kind, request):
    store = request.getfixturevalue(kind)
    stream = write(store, ["a", "b"])
    write(store, ["c"], worker="other:8")
    late = Record(kind=PACKET, step="d", started=9.0, items={"faces": 2}, memory=(1.0, 2.0, 1.5), device="cuda")
    stream.add(lambda: late.line(RUN, "host:7"))
    stream.flush(now=True)
    before = read(store, CALLS, RUN)
    gather(store, [RUN, "ffff"])
    assert store.names(PROFILE) == [f"calls-{RUN}.parquet"] and runs(store) == [RUN]
    after = read(store, CALLS, RUN)
    assert after.equals(before) and after.schema.equals(SCHEMA, check_metadata=True)
    assert after["step"].to_pylist() == ["a", "c", "b", "d"]
    assert after["node"].to_pylist() == ["host", "other", "host", "host"]
    assert after["items"][3].as_py() == [("faces", 2)] and after["vram_peak_gb"].to_pylist() == [None, None, None, 1.5]
    assert after["infer"].to_pylist() == [0.25, 0.25, 0.25, 0.0]


@pytest.mark.parametrize("kind", ["store", "bucket"])
def test_streams_that_could_not_be_removed_are_not_read_twice(kind, request, monkeypatch):
    store = request.getfixturevalue(kind)
    stream = write(store, ["a", "b"])
    before = read(store, CALLS, RUN)

    def killed(_store, path):
        raise OutputError(path, code="FK-OUTPUT-NOT-WRITABLE")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "remove", killed)
        gather(store, [RUN])
    assert len(store.names(PROFILE)) == 2 and read(store, CALLS, RUN).equals(before)
    late = Record(kind=PACKET, step="late", started=9.0)
    stream.add(lambda: late.line(RUN, "host:7"))
    stream.flush(now=True)
    assert read(store, CALLS, RUN)["step"].to_pylist() == ["a", "b", "late"]
    gather(store, [RUN])
    assert read(store, CALLS, RUN)["step"].to_pylist() == ["a", "b", "late"]
    assert store.names(PROFILE) == [f"calls-{RUN}.parquet"]


def test_a_torn_line_is_skipped_and_so_is_another_run(store, tmp_path):
    write(store, ["a", "b"])
    (path,) = (tmp_path / PROFILE).iterdir()
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        lines = [line for line in whole[:cut].split(b"\n") if line.endswith(b"}")]
        assert read(store, CALLS, RUN).num_rows == len(lines)
    write(Store(str(tmp_path)).of_run("ffffffffffff").begin(), ["x"])
    path.write_bytes(whole)
    gather(store, [RUN])
    assert len(runs(store)) == 2 and read(store, CALLS, RUN).num_rows == 2


def test_a_pending_line_is_written_without_a_flush(store):
    stream = Stream(store, CALLS, "host:7")
    record = Record(kind=PACKET, step="a", started=1.0)
    stream.add(lambda: record.line(RUN, "host:7"))
    deadline = time.monotonic() + 30
    while not read(store, CALLS, RUN).num_rows:
        assert time.monotonic() < deadline
        time.sleep(0.05)


class Ticking:
    """GPU events on a simulated clock; times are known only after `synchronize`."""

    now = 0.0
    waits = 0

    def record(self):
        self.at = Ticking.now

    def synchronize(self):
        Ticking.waits += 1

    def elapsed_time(self, later):
        return 1000 * (later.at - self.at)


@pytest.mark.parametrize("rounds", [1, 3])
def test_phases_by_events_add_up_without_waits_in_the_call(rounds):
    events = []

    def event():
        events.append(Ticking())
        return events[-1]

    stage, Ticking.now, Ticking.waits = Checksum(), 0.0, 0
    stage.clock = EventClock(event)
    for _ in range(rounds):
        with stage.phase("preprocess"):
            Ticking.now += 1
            for seconds in (2, 4):
                with stage.phase("upload"):
                    Ticking.now += seconds
            Ticking.now += 1
        with stage.phase("infer"), stage.phase("infer"):
            Ticking.now += 8
        assert Ticking.waits == 0
        assert stage.clock.take() == {"preprocess": 2, "upload": 6, "infer": 8} and stage.clock.take() == {}
        Ticking.waits = 0
    assert len(events) == 10  # reused


def test_a_call_with_many_phases_keeps_few_events(monkeypatch):
    monkeypatch.setattr("framekiln.contract.phases._MOST", 6)
    events = []

    def event():
        events.append(Ticking())
        return events[-1]

    clock, Ticking.now = EventClock(event), 0.0
    for _ in range(100):
        clock.begin()
        clock.begin()
        Ticking.now += 1
        clock.end("infer")
        Ticking.now += 2
        clock.end("preprocess")
    assert clock.take() == {"infer": 100, "preprocess": 200} and clock.take() == {}
    assert len(events) <= 14


def test_phases_inside_others_are_counted_once(monkeypatch):
    clock, moment = PhaseClock(), iter([0.0, 1.0, 3.0, 10.0])
    monkeypatch.setattr("framekiln.contract.phases.time.perf_counter", lambda: next(moment))
    clock.begin()
    clock.begin()
    clock.end("upload")
    clock.end("preprocess")
    assert clock.take() == {"upload": 2.0, "preprocess": 8.0}


@pytest.mark.slow
def test_a_run_leaves_records_of_every_step_that_add_up(tmp_path, machines, engine):
    for i in range(6):
        photo(tmp_path / "in" / f"photo{i}.png", i)
    clip(tmp_path / "in" / "clip.png", 100, 30)
    job = Job(order(tmp_path / "in", tmp_path / "out", ALL))
    result = job.run()
    assert f"calls-{job.store.run}.parquet" in job.store.names(PROFILE)
    assert all(name.endswith(".parquet") for name in job.store.names(PROFILE))
    written = read(job.store, CALLS, job.store.run).to_pylist()
    packets = [row for row in written if row["kind"] == PACKET]
    for step in ("decode", *ALL):
        mine = [row for row in packets if row["step"] == step]
        assert sum(row["rows"] for row in mine) == result.frames == 36, step
        for row in mine:
            parts = sum(row[name] for name in DURATIONS if name not in ("wait", "fetch", "seal"))
            assert parts <= row["seconds"] + 0.01
        calls = [row for row in written if row["kind"] == CALL and row["step"] == step]
        assert sum(row["rows"] for row in calls) == (0 if step == "decode" else 36)
    calls = [row for row in written if row["kind"] == CALL]
    assert calls and all(row["infer"] == row["seconds"] for row in calls)  # none of these stages declares a phase
    decoded = {(row["unit"], row["start"]): row["cost"] for row in packets if row["step"] == "decode"}
    seen = {(row["unit"], row["start"]): row["cost"] for row in packets if row["step"] == "near"}
    assert all(decoded[key] == cost > 0 for key, cost in seen.items())
    for unit in {unit for unit, _ in decoded}:
        calls = [row for row in written if (row["kind"], row["step"], row["unit"]) == (CALL, "crc", unit)]
        rows = sorted(i for row in calls for i in range(row["start"], row["stop"]))
        assert rows == list(range(len(rows)))  # each once
    for worker in {row["worker"] for row in written}:
        mine = [row for row in written if row["worker"] == worker]
        for row in (row for row in mine if row["step"] == "decode" and row["wait"]):
            before = [one["started"] + one["seconds"] for one in mine if one["started"] < row["started"]]
            assert (
                row["wait"] <= row["started"] - max(before, default=0.0) + 0.05
            )  # nobody waits while the process works
    # the local engine's processes hand nothing on
    assert any(row["kind"] == HAND_ON and row["seal"] > 0 for row in written) == (engine == "ray")
    assert {step.step: step.rows for step in result.profile.steps} == dict.fromkeys(("decode", *ALL), 36)
    assert {step.step for step in result.profile.steps if step.later} == {"count", "all"}


@pytest.mark.heavy
@pytest.mark.slow
@pytest.mark.usefixtures("on_ray")
def test_a_killed_process_leaves_its_records_up_to_a_second_before(tmp_path, machines, monkeypatch):
    monkeypatch.setattr("framekiln.engine.ray.datasets._STOP_SECONDS", 60.0)
    clip(tmp_path / "in" / "clip.png", 5, 30)
    steps = {"crc": ("Checksum", {}), "dies": ("DiesOnce", {"at": 13, "mark": str(tmp_path / "died"), "after": 1.5})}
    job = Job(order(tmp_path / "in", tmp_path / "out", steps))
    job.run()
    written = read(job.store, CALLS, job.store.run).to_pylist()
    (dead,) = {row["worker"] for row in written if row["step"] == "crc" and row["rows"]}
    mine = [row for row in written if row["worker"] == dead]
    assert sum(row["rows"] for row in mine if row["step"] == "crc" and row["kind"] == CALL) == 30
    assert [row["rows"] for row in mine if row["step"] == "crc" and row["kind"] == PACKET] == [30]
    (heir,) = {row["worker"] for row in written if row["step"] == "dies" and row["rows"]}
    assert heir != dead
    samples = read(job.store, NODES, job.store.run).to_pylist()
    assert samples and all(sample["workers_gb"] and sample["cpu_percent"] is not None for sample in samples)
    assert job.store.names(PROFILE) == [f"{kind.name}-{job.store.run}.parquet" for kind in (CALLS, NODES)]


def test_lines_that_are_no_records_are_skipped(tmp_path):
    store = Store(str(tmp_path))
    whole = Record(step="a", started=1.0).line("ab", "h:1")
    wrong = [b"7", b"null", b"{}", b"[" * 100_000, whole.replace(b"1.0", b'"x"'), whole.replace(b'"a"', b"{}")]
    store.append("profile/calls-ab-h-1.jsonl", b"\n".join([*wrong, whole.strip(), b""]))
    assert read(store, CALLS, "ab")["step"].to_pylist() == ["a"]


def test_a_clock_that_is_set_back_makes_no_negative_times(store, monkeypatch):
    work = StepWork(recorder=Recorder.of(store))
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert 0 <= work.finish().seconds < 60
