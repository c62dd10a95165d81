"""The timeline of a run agrees with records of known truth."""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from framekiln.contract.output_names import PROFILE
from framekiln.output.object_store import Store
from framekiln.profiling.export.trace_events import events
from framekiln.profiling.record_log import gather
from framekiln.profiling.records import CALL, HAND_ON, INSIDE, PACKET, SET_UP, Record
from tests.support.machine.command_line import command
from tests.support.machine.object_server import Objects, served

RUN, EPOCH = "abc123", 1.7e9
STEPS = ("decode", "light", "faces")
NEEDED = {
    "X": {"name", "cat", "ts", "dur", "pid", "tid"},
    "C": {"name", "ts", "pid", "args"},
    "M": {"name", "pid", "tid", "args"},
    **{phase: {"name", "cat", "id", "ts", "pid", "tid"} for phase in "stf"},
}


@pytest.fixture
def store(tmp_path):
    return fresh(tmp_path / "out")


def fresh(root):
    found = Store(str(root)).of_run(RUN).begin()
    found.prepare()
    return found


def keep(store, worker, records):
    for record in records:
        store.append(f"{PROFILE}/calls-{RUN}-{worker.replace(':', '-')}.jsonl", record.line(RUN, worker))


def sample(store, *samples):
    lines = b"".join(json.dumps({"run": RUN, "node": "a"} | item).encode() + b"\n" for item in samples)
    store.append(f"{PROFILE}/nodes-{RUN}-a-1.jsonl", lines)


def work(step, start, began, calls, unit="u", **more):
    """Return a packet's records as a worker writes them: its calls, the packet, its hand-on."""
    at, records = began + 0.001, []
    place = {"step": step, "unit": unit}
    for number, phases in enumerate(calls):
        seconds = sum(phases.values()) + 0.0005
        where = {"start": start + number, "stop": start + number + 1, "rows": 1, "cost": 100}
        records.append(Record(kind=CALL, started=at, seconds=seconds, durations=phases, **place, **where, **more))
        at += seconds
    durations = {"write": 0.002, "wait": 0.25, "fetch": 0.01} | ({"decode": 0.001} if step == "decode" else {})
    end = at + durations["write"]
    where = {
        "start": start,
        "stop": start + 10,
        "rows": 10,
        "cost": 1000,
        "seconds": end - began,
        "durations": durations,
    }
    packet = Record(kind=PACKET, started=began, items={"faces": 3}, **place, **where, **more)
    hand_on = Record(kind=HAND_ON, started=end, durations={"seal": 0.01}, start=start, stop=start + 10, **place)
    return [*records, packet, hand_on], end + 0.01


phases = st.dictionaries(st.sampled_from(INSIDE[1:-1]), st.floats(1e-6, 2.0), max_size=5)
packets = st.lists(st.tuples(st.lists(phases, max_size=4), st.floats(0.0, 1.0)), min_size=1, max_size=6)


def whole_run(store, drawn):
    """Write records of packets that pass all steps, with a process for each step."""
    ready, lines = [EPOCH] * len(drawn), []
    for step in STEPS:
        worker, free = f"a:{step}" if step != "faces" else "b:faces", EPOCH + 0.5
        recorded = [Record(kind=SET_UP, step=step, started=EPOCH, seconds=0.5)]
        for number, (calls, idle) in enumerate(drawn):
            memory = {"memory": (1.0, 2.0, 3.0), "device": "cuda"} if step == "faces" else {}
            free = max(free, ready[number]) + idle
            records, free = work(step, 10 * number, free, [] if step == "decode" else calls, **memory)
            ready[number] = free
            recorded += records
        keep(store, worker, recorded)
        lines += recorded
    return lines


def check(found):
    """Check the rules of every trace, and return its slices and flows."""
    slices, flows, names = defaultdict(list), defaultdict(list), Counter()
    for event in found:
        assert NEEDED[event["ph"]] <= set(event), event
        if event["ph"] == "C":
            values = event["args"].values()
            assert values and all(isinstance(value, int | float) for value in values), event
        elif event["ph"] == "M":
            names[event["name"], event["pid"], event["tid"]] += 1
            continue
        elif event["ph"] == "X":
            assert event["dur"] >= 0
            slices[event["pid"], event["tid"]].append(event)
        else:
            flows[event["id"]].append(event)
        assert event["ts"] >= 0
    assert set(names.values()) <= {1}
    for (pid, tid), drawn in slices.items():
        assert names["process_name", pid, 0] and names["thread_name", pid, tid]
        nested(drawn)
    for way in flows.values():
        way.sort(key=lambda event: event["ts"])
        assert "".join(event["ph"] for event in way).replace("t", "") == "sf"
        for event in way:
            there = [item for item in slices[event["pid"], event["tid"]] if item["cat"] == PACKET]
            assert any(item["ts"] <= event["ts"] <= item["ts"] + item["dur"] for item in there)
    return slices, flows


def nested(drawn):
    """Check that slices of a thread lie within each other or apart, to 1 us."""
    around = []
    levels = {PACKET: None, CALL: PACKET}
    for item in sorted(drawn, key=lambda item: (item["ts"], -item["dur"])):
        while around and around[-1]["ts"] + around[-1]["dur"] <= item["ts"] + 1e-3:
            around.pop()
        if around:
            assert item["ts"] + item["dur"] <= around[-1]["ts"] + around[-1]["dur"] + 1.0, (item, around[-1])
        parent = around[-1]["cat"] if around else None
        assert parent in (CALL, PACKET) if item["cat"] == "phase" else parent == levels.get(item["cat"]), (item, around)
        around.append(item)


@given(drawn=packets, rows=st.sampled_from((1, 3, 8192)), ended=st.booleans())
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_timeline_is_valid_and_adds_up(tmp_path_factory, drawn, rows, ended):
    store = fresh(tmp_path_factory.mktemp("out"))
    lines = whole_run(store, drawn)
    if ended:
        gather(store, [RUN])
    found = list(events(store, RUN, rows))
    slices, flows = check(found)
    assert set(flows) == {f"u:{10 * number}" for number in range(len(drawn))}
    assert all(len(way) == len(STEPS) for way in flows.values())
    drawn_us = Counter()
    for item in (item for row in slices.values() for item in row if item["cat"] == PACKET):
        drawn_us[item["name"]] += item["dur"]
    for step in STEPS:
        seconds = sum(line.seconds for line in lines if line.kind == PACKET and line.step == step)
        assert drawn_us[step] == pytest.approx(1e6 * seconds, abs=6 * len(drawn))
    threads = [event for event in found if event["name"] == "thread_sort_index"]
    assert [event["args"]["sort_index"] for event in threads] == [0, 1, 2]


def counted(found, name):
    return [(event["ts"], event["args"]) for event in found if event["ph"] == "C" and event["name"] == name]


def only(found, name):
    (item,) = (event for event in found if event["ph"] == "X" and event["name"] == name)
    return item


def packet(step, start, began, seconds, **more):
    place = {"unit": "u", "start": start, "stop": start + 10, "rows": 10, "cost": 640}
    return Record(kind=PACKET, step=step, started=EPOCH + began, seconds=seconds, **place | more)


def test_a_call_its_packet_and_its_wait_are_drawn_at_their_times(store):
    took = {"wait": 1.0, "fetch": 0.5, "write": 0.5}
    inside = {"infer": 1.0, "upload": 0.25, "preprocess": 0.5}
    place = {"step": "faces", "device": "cuda", "unit": "u", "stop": 10, "rows": 10, "memory": (1.0, 2.0, 1.5)}
    keep(
        store,
        "a:1",
        [
            Record(kind=SET_UP, step="faces", started=EPOCH, seconds=1.0),
            Record(kind=CALL, started=EPOCH + 3, seconds=2.0, durations=inside, **place),
            packet("faces", 0, 3.0, 3.0, durations=took, items={"faces": 7}),
            Record(kind=HAND_ON, step="faces", started=EPOCH + 6, durations={"seal": 0.5}, unit="u", stop=10),
        ],
    )
    found = list(events(store, RUN))
    check(found)
    at = {name: (only(found, name)["ts"] / 1e6, only(found, name)["dur"] / 1e6) for name in (*inside, *took)}
    assert at == {"preprocess": (3, 0.5), "upload": (3.5, 0.25), "infer": (3.75, 1)} | {
        "wait": (1.5, 1),
        "fetch": (2.5, 0.5),
        "write": (5.5, 0.5),
    }
    assert only(found, "wait")["cat"] == "wait" and "cname" in only(found, "wait")
    assert (only(found, "set-up faces")["dur"], only(found, "hand-on faces")["dur"]) == (1e6, 0.5e6)
    about = {"unit": "u", "start": 0, "stop": 10, "rows": 10, "cost": 640, "device": "cpu", "items": {"faces": 7}}
    assert only(found, "faces")["args"] == about
    assert counted(found, "VRAM GB a:1") == [(5e6, {"allocated": 1.0, "reserved": 2.0, "peak": 1.5})]


def test_phases_longer_than_their_call_by_a_gpus_clock_are_shortened(store):
    took = {"durations": {"infer": 3.0, "download": 1.0}}
    keep(
        store, "a:1", [Record(kind=CALL, step="faces", started=EPOCH, seconds=2.0, **took), packet("faces", 0, 0, 2.0)]
    )
    found = list(events(store, RUN))
    check(found)
    assert [(only(found, name)["ts"], only(found, name)["dur"]) for name in ("infer", "download")] == [
        (0, 1.5e6),
        (1.5e6, 0.5e6),
    ]
    assert only(found, "infer")["args"] == {"seconds": 3.0}


def test_a_queue_holds_packets_between_the_end_of_a_step_and_the_start_of_the_next(store):
    keep(store, "a:1", [packet("decode", 10 * i, i, 1.0) for i in range(3)])  # finished at 1, 2 and 3 s
    keep(store, "a:2", [packet("faces", 10 * i, 2.5 + i, 1.0) for i in range(2)])  # begun at 2.5 and 3.5 s
    keep(store, "a:3", [Record(kind=PACKET, step="tracks", started=EPOCH + 9, unit="u.parquet", rows=1, seconds=1.0)])
    found = list(events(store, RUN))
    check(found)
    depths = [(at / 1e6, args["packets"]) for at, args in counted(found, "waiting for faces")]
    assert depths == [(1, 1), (2, 2), (2.5, 1), (3.5, 0)]
    assert not counted(found, "waiting for tracks")


def test_nodes_have_counters_for_the_values_of_their_samples(store):
    gpu = {"use_percent": 80.0, "memory_gb": 4.0, "power_w": None}
    keep(store, "a:1", [packet("decode", 0, 0.0, 1.0)])
    sample(store, {"time": EPOCH + 1, "cpu_percent": 50.0, "memory_gb": 2.0, "gpus": [gpu, gpu]})
    sample(store, {"time": EPOCH + 2, "cpu_percent": None, "store_gb": 0.5})
    found = list(events(store, RUN))
    check(found)
    names = {event["name"] for event in found if event["ph"] == "C"}
    assert names == {"CPU %", "memory GB", "object store GB"} | {
        f"GPU {number} {name}" for number in (0, 1) for name in ("use %", "memory GB")
    }
    assert counted(found, "CPU %") == [(1e6, {"value": 50.0})]
    assert counted(found, "object store GB") == [(2e6, {"value": 0.5})]


def test_the_command_writes_the_trace_of_a_run_that_goes_on_and_of_one_that_has_ended(store, tmp_path):
    whole_run(store, [([{"infer": 0.5}], 0.1)] * 3)
    sample(store, {"time": EPOCH + 1, "cpu_percent": 50.0, "memory_gb": 2.0, "gpus": []})
    assert command("trace", store.root, "--output", tmp_path / "plain.json").returncode == 0
    gather(store, [RUN])
    assert all(name.endswith(".parquet") for name in store.names(PROFILE))
    done, path = command("trace", store.root, "--run", RUN), tmp_path / "out" / f"trace-{RUN}.json.gz"
    assert done.stdout.startswith(f"{path}: ") and done.stdout.count("\n") == 1
    packed = json.loads(gzip.decompress(path.read_bytes()))
    plain = json.loads((tmp_path / "plain.json").read_bytes())
    check(packed["traceEvents"])

    def known(trace):  # rows are numbered in the order of their first record
        return Counter((e["name"], e["ph"], e.get("ts"), e.get("dur")) for e in trace["traceEvents"])

    assert known(packed) == known(plain)


def test_the_trace_may_go_to_a_bucket_that_options_name(store):
    whole_run(store, [([{"infer": 0.5}], 0.1)])
    with served(Objects()) as bucket:
        done = command("trace", store.root, "--output", bucket.url.format("traces/plain.json"))
        assert done.returncode == 0, done.stderr
        check(json.loads(bucket.files["traces/plain.json"])["traceEvents"])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), "[FK-NOT-AN-OUTPUT]"),
        (("--run", "abd123"), "[FK-UNKNOWN-RUN]"),
        (("--output", "there/"), "there/"),
        (("--output", "s3://bucket"), "[FK-IS-A-FOLDER]"),
        (("--output", "s3://bucket/there/?region=x"), "[FK-IS-A-FOLDER]"),
        (("--output", "/etc/passwd/x.json"), "[FK-NOT-A-FOLDER]"),
    ],
)
def test_mistakes_are_one_sentence(store, words, expected):
    if words:
        keep(store, "a:1", [packet("decode", 0, 0.0, 1.0)])
    done = command("trace", store.root, *words)
    assert done.returncode == 2 and expected in done.stderr
    assert done.stderr.startswith("Error: ") and done.stderr.count("\n") == 1
    assert not [name for name in store.names("") if "trace" in name]
