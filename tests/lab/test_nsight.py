"""Nsight's tools: exact commands, exit codes, fallback, and figures of exports that are made by hand.

The tools are small programs that write down their arguments: no GPU is needed, and none of NVIDIA's code runs.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from dataclasses import asdict, replace

import pytest
from rich.console import Console

from framekiln.api.bench_options import CellOptions
from framekiln.cli.bench.nsight import bench_nsight
from framekiln.cli.bench.options import NsightOptions
from framekiln.contract.errors import ConfigError, SetupError
from framekiln.lab.nsight.reports import (
    KernelFigures,
    MemoryCopies,
    SystemsFigures,
    compute_findings,
    read_compute,
    read_systems,
    systems_findings,
)
from framekiln.lab.nsight.session import REPORTS, NsightRecorder, Target, main
from framekiln.lab.output.cells import Cell
from tests.lab.report.results import section_ids

US = 1000  # ns
TARGET = Target(model="tests.lab.models:plain", cell=Cell(batch=4, precision="bf16"))
TOOL = """#!{python}
import json, pathlib, shutil, sys
words = sys.argv[1:]
with open({log!r}, "a") as log:
    log.write(json.dumps(words) + "\\n")
{body}
"""
RECORDS = """
out = [word.removeprefix("--output=") for word in words if word.startswith("--output=")]
if words[0] == "profile" and not (BROKEN_RANGE and "--capture-range=cudaProfilerApi" in words):
    pathlib.Path(out[0] + ".nsys-rep").write_text("report")
elif words[0] == "stats":
    shutil.copy(DATABASE, out[0] + ".sqlite")
"""
CSV = """==PROF== Disconnected
"ID","Kernel Name","gpu__time_duration.sum","sm__throughput.avg.pct_of_peak_sustained_elapsed",\
"gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed","sm__warps_active.avg.pct_of_peak_sustained_active"
"","","ns","%","%","%"
"0","gemm","12,500.0","71.5","40","55"
"1","copy","2,000","5","88.25","n/a"
"""


def make_export(path, kernels, copies=(), launches=()):
    """Write a database with the tables and columns that nsys exports, times in microseconds."""
    with sqlite3.connect(path) as made:
        made.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
        made.executemany("INSERT INTO StringIds VALUES (?, ?)", [(7, "gemm"), (8, "add")])
        made.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, correlationId, shortName, streamId)"
        )
        rows = [(start * US, end * US, 0, number, name, 1) for start, end, number, name in kernels]
        made.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?, ?)", rows)
        if copies:
            made.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start, end, deviceId, bytes, copyKind)")
            rows = [(start * US, end * US, 0, size, kind) for start, end, size, kind in copies]
            made.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?, ?, ?, ?, ?)", rows)
        if launches:
            made.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start, end, correlationId, nameId)")
            rows = [(start * US, end * US, number, 0) for start, end, number in launches]
            made.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?)", rows)
    return path


@pytest.fixture
def export(tmp_path):
    """Two kernels that overlap, a pause of 60 us, one of 40 us, a small kernel, copies both ways."""
    return make_export(
        tmp_path / "made.sqlite",
        kernels=[(0, 100, 1, 7), (50, 140, 2, 7), (200, 205, 3, 8)],
        copies=[(245, 295, 1_000_000, 1), (295, 300, 5_000, 2)],
        launches=[(-30, -10, 1), (-10, 20, 2), (190, 196, 3), (400, 900, 99)],
    )


def test_figures_of_an_export(export):
    """By hand: busy 0-140, 200-205, 245-300 of 300 us; launches of 20, 30 and 6 us, kernels 10, 30 and 4 us later."""
    figures = read_systems(export)
    assert (figures.span_ms, figures.busy_ms, figures.kernel_ms) == pytest.approx((0.3, 0.2, 0.195))
    assert figures.idle_share == pytest.approx(1 / 3)
    assert (figures.gaps, figures.gaps_ms, figures.longest_gap_ms) == (1, pytest.approx(0.06), pytest.approx(0.06))
    assert (figures.kernels, figures.small_kernels, figures.launches) == (3, 1, 3)
    assert figures.launch_ms == pytest.approx(0.056)
    up, down = figures.copies["host to device"], figures.copies["device to host"]
    assert (up.count, up.ms, up.megabytes) == (1, pytest.approx(0.05), 1.0) and down.count == 1


def test_an_export_without_work_of_a_gpu_and_a_file_that_is_none(tmp_path):
    path = tmp_path / "empty.sqlite"
    sqlite3.connect(path).execute("CREATE TABLE StringIds (id, value)")
    assert read_systems(path) is None
    path.write_text("no database, but text that is long enough to be read as the head of one" * 20)
    with pytest.raises(sqlite3.DatabaseError):
        read_systems(path)


def figures(**changed) -> SystemsFigures:
    good = {"span_ms": 100, "busy_ms": 95, "kernels": 100, "kernel_ms": 95, "small_kernels": 10, "gaps": 0}
    good |= {"gaps_ms": 0, "longest_gap_ms": 0, "launches": 100, "launch_ms": 1}
    return SystemsFigures(**(good | changed))


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        ({"busy_ms": 79}, "GPU idle"),
        ({"launch_ms": 95}, "launch overhead"),
        ({"small_kernels": 51}, "small kernels"),
        ({"copies": {"host to device": MemoryCopies(count=1, ms=11, megabytes=110)}}, "copies"),
    ],
)
def test_each_rule_applies_to_its_numbers_alone(changed, rule):
    (finding,) = systems_findings("m", figures(**changed))
    assert finding.rule == rule and finding.numbers
    assert list(systems_findings("m", figures())) == []
    device = {"copies": {"device to device": MemoryCopies(count=1, ms=11, megabytes=110)}}
    assert list(systems_findings("m", figures(busy_ms=81, launch_ms=80, small_kernels=50, **device))) == []


def test_the_limit_of_the_slowest_kernel():
    first, second = read_compute(CSV)
    assert (first.name, first.us, first.compute_percent, first.memory_percent) == ("gemm", 12.5, 71.5, 40)
    assert (second.memory_percent, second.occupancy_percent) == (88.25, None)

    def rules(compute, memory):
        kernel = {"name": "k", "us": 1.0, "compute_percent": compute, "memory_percent": memory}
        return [finding.rule for finding in compute_findings("m", [KernelFigures(**kernel, occupancy_percent=20)])]

    assert [finding.rule for finding in compute_findings("m", [first, second])] == ["kernel bound by arithmetic"]
    deep = {"name": "k", "us": 1.0, "compute_percent": 80, "memory_percent": 10, "occupancy_percent": 20}
    (used,) = compute_findings("m", [KernelFigures(**deep, tensor_percent=75.0)])
    (idle,) = compute_findings("m", [KernelFigures(**deep, tensor_percent=0.0)])
    assert used.numbers["tensor_percent"] == 75 and used.fix != idle.fix
    _, scattered = compute_findings("m", [KernelFigures(**deep, sector_percent=12.5)])
    assert scattered.rule == "scattered access" and scattered.numbers == {"sector_percent": 12.5}
    assert rules(30, 70) == ["kernel bound by memory"] and rules(59, 59) == ["kernel bound by latency"]
    assert read_compute("==ERROR== nothing") == [] and list(compute_findings("m", [])) == []


def test_figures_whose_names_differ_between_versions_are_found():
    """Tensor cores by the busiest pipe; bytes of a sector of the worse of loads and stores, in percent or of 32."""
    sector = "smsp__sass_average_data_bytes_per_sector_mem_global_op_"
    names = ["Kernel Name", "gpu__time_duration.sum", "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"]
    names += ["sm__inst_executed_pipe_tensor_op_hmma.avg.pct_of_peak_sustained_active", "lts__t_sector_hit_rate.pct"]
    names += ["l1tex__t_sector_hit_rate.pct", f"{sector}ld.pct", f"{sector}st.ratio"]
    table = [names, ["", "us", "%", "%", "%", "%", "%", "byte"], ["k", "3", "41", "44.5", "60", "5", "100", "8"]]
    (kernel,) = read_compute("\n".join(",".join(f'"{cell}"' for cell in line) for line in table))
    assert (kernel.us, kernel.tensor_percent) == (3, 44.5)
    assert (kernel.l1_hit_percent, kernel.l2_hit_percent, kernel.sector_percent) == (5, 60, 25)


def test_the_exact_commands(tmp_path):
    recorder = NsightRecorder(folder=tmp_path)
    python = [sys.executable, "-m", "framekiln.lab.nsight.session", json.dumps(asdict(TARGET))]
    record = ["nsys", "profile", "--trace=cuda,cudnn,cublas,nvtx,osrt", "--sample=none", "--force-overwrite=true"]
    out = f"--output={recorder.report(TARGET, 'external').with_suffix('')}"
    assert recorder.commands(["nsys"], TARGET, "external")[0] == [*record, out, *python]
    ranged = ["--capture-range=cudaProfilerApi", "--capture-range-end=stop"]
    recorded, stats = recorder.commands(["nsys"], TARGET, "inline")
    assert recorded == [*record, *ranged, out, *python, "--range"]
    assert stats[1:4] == ["stats", f"--report={','.join(REPORTS)}", "--format=csv"]
    words = recorder.commands(["sudo", "ncu"], TARGET, None)[0]
    assert words[:2] == ["sudo", "ncu"] and words[-1] == "--range"
    assert words[words.index("--launch-count") + 1] == "20" and words[words.index("--export") + 1].endswith("ncu-rep")


KERNELS = f"""
if "--import" in words:
    print({CSV!r})
else:
    pathlib.Path(words[words.index("--export") + 1]).write_text("report")
"""


@pytest.fixture
def tool(tmp_path, export):
    """Return a maker of tools that write down their arguments; `calls` reads these."""
    log = tmp_path / "calls.jsonl"

    def make(body, name="nsys", *, broken=False):
        body = body.replace("BROKEN_RANGE", str(broken)).replace("DATABASE", repr(str(export)))
        path = tmp_path / name
        path.write_text(TOOL.format(python=sys.executable, log=str(log), body=body))
        path.chmod(0o755)
        return [str(path)]

    make.calls = lambda: [json.loads(line) for line in log.read_text().splitlines()]
    return make


def test_nsys_records_and_exports(tmp_path, tool):
    found = NsightRecorder(folder=tmp_path / "out").record_systems(tool(RECORDS), TARGET, "inline")
    assert found.kernels == 3
    assert [words[0] for words in tool.calls()] == ["profile", "stats"] and "--range" in tool.calls()[0]
    assert (tmp_path / "out" / "tests.lab.models-plain.sqlite").exists()


def test_without_a_range_the_whole_process_is_recorded(tmp_path, tool):
    notes = []
    recorder = NsightRecorder(folder=tmp_path / "out", note=notes.append)
    assert recorder.record_systems(tool(RECORDS, broken=True), TARGET, "inline").kernels == 3
    assert [("--range" in words, words[0]) for words in tool.calls()] == [
        (True, "profile"),
        (False, "profile"),
        (False, "stats"),
    ]
    assert len(notes) == 1


def test_tools_that_fail_stop_with_their_last_line(tmp_path, tool):
    broken = tool("print('the target died', file=sys.stderr); sys.exit(3)")
    for record in (
        lambda recorder: recorder.record_systems(broken, TARGET, "external"),
        lambda recorder: recorder.record_kernels(broken, TARGET),
        lambda recorder: recorder.record_kernels(["/nowhere/ncu"], TARGET),
    ):
        with pytest.raises(SetupError) as error:
            record(NsightRecorder(folder=tmp_path / "out"))
        assert error.value.code == "FK-NSIGHT-FAILED"
    forbidden = tool("print('==ERROR== ERR_NVGPUCTRPERM'); sys.exit(1)", name="ncu")
    with pytest.raises(ConfigError) as error:
        NsightRecorder(folder=tmp_path / "out").record_kernels(forbidden, TARGET)
    assert error.value.code == "FK-NCU-FORBIDDEN"


@pytest.mark.parametrize("line", ["==WARNING== No kernels were profiled.", "Importer error status: no importer."])
def test_a_tool_that_ends_well_without_a_report_says_why(tmp_path, tool, line):
    """Lines of ncu 2022.3 without a kernel, and of nsys 2022.4 without its importer; both end with exit code 0."""
    quiet = tool(f"print({line!r}); print('Generated:'); print('a warning of the target', file=sys.stderr)")
    recorder = NsightRecorder(folder=tmp_path / "out")
    recorder.folder.mkdir()
    for mode in ("external", None):  # an earlier recording is not read again
        recorder.report(TARGET, mode).write_text("old")
    for record in (
        lambda: recorder.record_systems(quiet, TARGET, "external"),
        lambda: recorder.record_kernels(quiet, TARGET),
    ):
        with pytest.raises(SetupError) as error:
            record()
        assert error.value.code == "FK-NSIGHT-FAILED" and line in str(error.value)


def test_the_command_writes_findings_and_a_table(tmp_path, tool, monkeypatch):
    monkeypatch.setenv("NSYS_CMD", tool(RECORDS)[0])
    monkeypatch.setenv("NCU_CMD", tool(KERNELS, name="ncu")[0])
    options = NsightOptions(nsys="external", ncu=True)
    bench_nsight(Console(quiet=True), [TARGET.model], CellOptions(device="cpu"), options, tmp_path / "out")
    stats = json.loads((tmp_path / "out" / "profile_stats.json").read_text())
    rules = [finding["rule"] for finding in stats["findings"]]
    assert rules == ["GPU idle", "copies", "kernel bound by arithmetic"]
    assert stats["extra"]["nsight"][TARGET.model]["--nsys"]["kernels"] == 3
    assert (tmp_path / "out" / "nsight" / "tests.lab.models-plain.csv").read_text().startswith("==PROF==")
    assert section_ids(tmp_path / "out" / "index.html") == ["findings", "nsys", "ncu-0"]


def test_a_dry_run_prints_the_commands_and_runs_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", "/nowhere")
    options = NsightOptions(nsys="inline", ncu=True, dry_run=True)
    bench_nsight(Console(), [TARGET.model], CellOptions(device="cuda"), options, tmp_path / "my out")
    lines = capsys.readouterr().out.splitlines()
    begins = [" ".join(line.split()[:2]) for line in lines]
    assert begins == ["mkdir -p", "nsys profile", "nsys stats", "ncu --section", "ncu --import"]
    assert f"'--output={tmp_path}/my out/nsight/tests.lab.models-plain'" in lines[1]
    assert not (tmp_path / "my out").exists()
    with pytest.raises(ConfigError) as error:
        bench_nsight(Console(), [TARGET.model], CellOptions(device="cpu"), NsightOptions(ncu=True), tmp_path)
    assert error.value.code == "FK-NCU-MISSING"


def test_a_dry_run_names_a_tool_that_only_another_machine_has(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("NSYS_CMD", "sudo -E /opt/jetson/nsys")
    monkeypatch.setenv("PATH", "/nowhere")
    options = NsightOptions(nsys="external", dry_run=True)
    bench_nsight(Console(), [TARGET.model], CellOptions(device="cuda"), options, tmp_path)
    assert capsys.readouterr().out.splitlines()[1].startswith("sudo -E /opt/jetson/nsys profile ")
    with pytest.raises(ConfigError) as error:
        bench_nsight(Console(), [TARGET.model], CellOptions(device="cpu"), NsightOptions(nsys="external"), tmp_path)
    assert error.value.code == "FK-NSIGHT-COMMAND"


def test_the_target_makes_the_calls():
    plain = replace(TARGET, cell=Cell(batch=2), device="cpu", calls=4)
    assert main(plain.words(ranged=True)[3:]) == 4
    own = replace(plain, model="tests.lab.models:own_batch", own_batch=True, calls=1)
    assert main(own.words(ranged=False)[3:]) == 1
