"""`framekiln bench`: mistakes end it before a model is built, and figures measured before an end are kept."""

from __future__ import annotations

import json

import psutil
import pytest
from typer.testing import CliRunner

from framekiln.cli.app import app
from framekiln.lab.nsight.session import Target
from framekiln.lab.nsight.session import main as record_calls
from framekiln.lab.output.cells import Cell
from framekiln.lab.output.results import write_report
from tests.lab.report.results import noisy, report, result


def test_the_command_compares_two_files(tmp_path):
    base = write_report(report(result(noisy(10))), tmp_path / "base.json")
    new = write_report(report(result(noisy(12))), tmp_path / "new.json")
    words = ["bench", str(new), "--against", str(base), "--out", str(tmp_path / "out")]
    assert CliRunner().invoke(app, [*words, "--fail-if", "p50>+5%"]).exit_code == 1
    assert CliRunner().invoke(app, [*words, "--fail-if", "p50>+50%"]).exit_code == 0
    assert (tmp_path / "out" / "index.html").exists() and not (tmp_path / "out" / "profile_stats.json").exists()


def test_a_cell_of_the_base_that_fails_now_is_never_a_pass(tmp_path):
    """The exit code is that of `framekiln compare` for a figure that was not measured."""
    base = write_report(report(result(), result(batch=8)), tmp_path / "base.json")
    full = result(batch=8, outcome="oom", why="fp32", latency_ms=None)
    new = write_report(report(result(), full), tmp_path / "new.json")
    words = ["bench", str(new), "--against", str(base), "--out", str(tmp_path / "out"), "--fail-if"]
    assert CliRunner().invoke(app, [*words, "peak_gb>+5%"]).exit_code == 2
    assert CliRunner().invoke(app, [*words, "peak_gb>0.1"]).exit_code == 2


def test_conditions_without_a_base_are_a_mistake(tmp_path):
    done = CliRunner().invoke(app, ["bench", str(tmp_path), "--fail-if", "p50>+5%"])
    assert done.exception.code == "FK-BENCH-NO-BASE"


@pytest.mark.parametrize(
    "words",
    [
        *(
            "--ncu --save x.json",
            "--dry-run --history x.jsonl",
            "--nsys inline --against x.json",
            "--ncu --target p50<9",
        ),
        *("--dry-run --fail-if p50>1", "--sav . --clip 4k", "--sav . --test", "--clip 4k --ncu"),
        *("--clip-frames 9", "--runs 2", "--overlays", "--stereo", "--note x"),
        *("--test --batch 2", "--clip 4k --layers", "--nsys inline -n 3", "--ncu --find-batch 8"),
        *("-n 3 -d 1", "--batch 1,2 --find-batch 8", "--depth 3", "--clip 4k --rate 5", "--list --batch 2"),
    ],
)
def test_options_that_would_be_left_out_in_silence_are_mistakes(words):
    done = CliRunner().invoke(app, ["bench", "tests.lab.models:plain", *words.split()])
    apart = words in ("--sav . --clip 4k", "--sav . --test", "--clip 4k --ncu")
    assert done.exception.code == ("FK-BENCH-OPTION" if apart else "FK-IDLE-OPTION")


@pytest.mark.parametrize("words", ["--layers", "--history runs.jsonl", "--batch 2"])
def test_figures_measured_before_take_no_options_of_a_measurement(tmp_path, words):
    base = write_report(report(result()), tmp_path / "base.json")
    done = CliRunner().invoke(app, ["bench", str(base), *words.split()])
    assert done.exception.code == "FK-IDLE-OPTION"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("--precisions fp33", "FK-BENCH-PRECISION"),
        ("--precisions ,", "FK-BENCH-LIST"),
        ("--batch 0", "FK-BENCH-LIST"),
        ("--out FILE", "FK-NOT-A-FOLDER"),
        ("--save FOLDER", "FK-IS-A-FOLDER"),
        ("--history FILE", "FK-BENCH-HISTORY"),
        ("--against FILE", "FK-BENCH-REPORT"),
        ("--target p42<3", "FK-TARGET"),
        ("--target p50<-1", "FK-TARGET"),
        ("--target 4k30 -n 120", "FK-BENCH-TARGET"),
        ("--against BASE --fail-if p51>1", "FK-GATE-FIGURE"),
        ("--against BASE --fail-if faces.p50>1", "FK-GATE-FORM"),
        ("--against BASE --fail-if p95>+5% -n 20", "FK-BENCH-TARGET"),
        ("--against BASE --fail-if p50>+1% -n 39", "FK-BENCH-TARGET"),  # 40 for an interval
        ("--against BASE --fail-if rate<-1% -n 39", "FK-BENCH-TARGET"),
        ("--against BASE --fail-if p99>+5%", "FK-GATE-NOT-MEASURED"),
        ("--lines tests.lab.models:nothing", "FK-BENCH-LINES"),
        ("--device cuda", "FK-BENCH-NO-GPU"),
    ],
)
def test_mistakes_are_found_before_a_model_is_built(tmp_path, monkeypatch, words, code):
    monkeypatch.setattr("framekiln.lab.sweep.runner.ModelBench", None)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("no history")
    base = write_report(report(result((0.01,) * 200)), tmp_path / "base.json")
    words = words.replace("FILE", str(tmp_path / "file")).replace("FOLDER", str(tmp_path)).replace("BASE", str(base))
    done = CliRunner().invoke(app, ["bench", "tests.lab.models:plain", *words.split()])
    assert done.exception.code == code


@pytest.mark.parametrize("model", ["", ","])
def test_no_model_is_a_mistake(model):
    assert CliRunner().invoke(app, ["bench", model]).exception.code == "FK-BENCH-MODEL"


def test_a_folder_with_the_name_of_a_model_is_not_read_instead_of_it(tmp_path, monkeypatch):
    """As `--out lama` makes one."""
    monkeypatch.chdir(tmp_path)
    write_report(report(result()), tmp_path / "lama" / "profile_stats.json")
    done = CliRunner().invoke(app, ["bench", "lama", "--precisions", "fp33"])
    assert done.exception.code == "FK-BENCH-PRECISION"
    assert CliRunner().invoke(app, ["bench", "./lama", "--quiet"]).exit_code == 0


@pytest.mark.heavy
def test_cells_before_a_model_that_cannot_be_built_are_kept(tmp_path):
    models = "tests.lab.models:plain,tests.lab.models:raises_two_lines"
    words = f"bench {models} --device cpu -n 1 --warmup 0 --warmup-s 0 --quiet"
    done = CliRunner().invoke(app, [*words.split(), "--out", str(tmp_path)])
    assert done.exception.code == "FK-BENCH-BUILD"
    figures = json.loads((tmp_path / "profile_stats.json").read_text())
    assert [cell["outcome"] for cell in figures["cells"]] == ["ok"]


@pytest.mark.heavy
def test_a_bench_that_measured_nothing_is_no_success(tmp_path):
    words = "bench tests.lab.models:plain --device cpu --size 5 -n 1 --warmup 0 --warmup-s 0 --quiet"
    done = CliRunner().invoke(app, [*words.split(), "--out", str(tmp_path)])
    assert done.exception.code == "FK-BENCH-NOTHING-MEASURED"
    assert json.loads((tmp_path / "profile_stats.json").read_text())["cells"][0]["outcome"] == "error"


def test_only_steps_that_can_be_measured_are_listed():
    done = CliRunner().invoke(app, ["bench", "--list"])
    assert "faces" in done.output and "identities" not in done.output


QUICK = "--device cpu -n 1 --warmup 0 --warmup-s 0 --quiet"
OWN_STAGES = """
import pyarrow as pa
from dataclasses import dataclass
from framekiln.contract import Stage, field, views

class Grey(Stage):
    inputs = ("frame_224",)
    outputs = pa.schema([field("grey", pa.float32(), "mean level, 0 to 255")])

    def __call__(self, batch):
        return pa.table([pa.array([view.mean() for view in views(batch["frame_224"])], pa.float32())], self.outputs)

class Sharpness(Stage):
    @dataclass(frozen=True, kw_only=True)
    class Config(Stage.Config):
        most: float = 0.0  # level

    inputs = ("grey",)
    outputs = pa.schema([field("sharpness", pa.float32(), "from 0")])

    def __call__(self, batch):
        if not 0 < max(batch["grey"].to_pylist()) < self.config.most:
            raise ValueError("other pixels or other settings")
        return pa.table([batch["grey"]], schema=self.outputs)

class Blunt(Sharpness):
    outputs = pa.schema([field("blunt", pa.float32(), "from 0")])
"""


def cells(folder):
    return json.loads((folder / "profile_stats.json").read_text())["cells"]


@pytest.mark.heavy
def test_a_step_of_a_users_pipeline_is_called_on_what_its_steps_before_made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_stages.py").write_text(OWN_STAGES)
    (tmp_path / "mine.yaml").write_text(
        "steps:\n  grey: {use: 'own_stages:Grey'}\n"
        "  sharpness: {use: 'own_stages:Sharpness', with: {most: 255}}\n"
        "  blunt: {use: 'own_stages:Blunt', with: {most: 0.1}}\n"
    )
    words = f"bench sharpness,blunt --pipeline mine.yaml --batch 2 --out made {QUICK}"
    done = CliRunner().invoke(app, words.split())
    assert done.exit_code == 0, done.exception
    assert [(cell["model"], cell["outcome"]) for cell in cells(tmp_path / "made")] == [
        ("sharpness", "ok"),
        ("blunt", "error"),
    ]
    target = Target(model="sharpness", cell=Cell(batch=2), device="cpu", pipeline="mine.yaml", calls=2)
    assert record_calls(target.words(ranged=False)[3:]) == 2, "as nsys and ncu call it"
    asked = "bench sharpness --nsys inline --dry-run --pipeline mine.yaml --device cpu"
    assert '"pipeline": "mine.yaml"' in CliRunner().invoke(app, asked.split()).output
    listed = CliRunner().invoke(app, ["bench", "--list", "--pipeline", "mine.yaml"]).output
    assert "Steps: grey, sharpness, blunt" in listed


@pytest.mark.heavy
def test_figures_of_a_crowded_machine_are_called_worthless_before_the_first_one(tmp_path, monkeypatch):
    monkeypatch.setattr("psutil.cpu_percent", lambda interval=None, percpu=False: [90.0] if percpu else 90.0)
    cores, said = psutil.cpu_count(), "other programs use"
    command = f"bench tests.lab.models:plain --out {tmp_path} {QUICK}"
    done = CliRunner().invoke(app, command.split())
    assert done.exit_code == 0 and said in done.stderr  # also with --quiet
    done = CliRunner().invoke(app, command.removesuffix(" --quiet").split())
    assert done.output.count(said) == 1 and done.output.index(said) < done.output.index("ms a call")
    finding = json.loads((tmp_path / "profile_stats.json").read_text())["findings"][0]
    assert finding["rule"] == "load" and finding["numbers"]["cores"] == pytest.approx(0.9 * cores)


def verdicts(folder):
    return [target["verdict"] for target in json.loads((folder / "profile_stats.json").read_text())["targets"]]


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A model's own folder of figures, of two batches, by a command that misses its target; for reading only."""
    folder = tmp_path_factory.mktemp("measured")
    words = f"bench tests.lab.models:plain --target p50<0.000001 --batch 1,2 --layers {QUICK.replace('-n 1', '-n 10')}"
    done = CliRunner().invoke(app, [*words.split(), "--out", str(folder), "--save", str(folder / "base.json")])
    assert done.exit_code == 1, done.output
    return folder


def test_a_target_that_is_not_met_fails_a_bench_of_models(measured, tmp_path):
    assert verdicts(measured) == ["not met"] * 2
    for limit, code in (("p50<0.000001", 1), ("p50<100000", 0)):  # of figures measured before
        again = f"bench {measured} --target {limit} --out {tmp_path / 'again'} --quiet"
        assert CliRunner().invoke(app, again.split()).exit_code == code


@pytest.mark.heavy
@pytest.mark.parametrize(("words", "code"), [("--backends torch,tensorrt", 0), ("--size 12,5", 1)])
def test_a_target_fails_where_a_cell_does_and_not_where_it_does_not_exist(tmp_path, words, code):
    """TensorRT does not run on a CPU; the model raises for a size of 5."""
    command = f"bench tests.lab.models:plain {words} --target p50<100000 --out {tmp_path} {QUICK}"
    assert CliRunner().invoke(app, command.replace("-n 1", "-n 10").split()).exit_code == code
    assert {cell["outcome"] for cell in cells(tmp_path)} == {"ok", "error" if code else "unsupported"}


@pytest.mark.heavy
def test_a_target_has_as_many_calls_as_it_needs(tmp_path):
    command = f"bench tests.lab.models:plain --target p99<100000 --out {tmp_path} --device cpu --quiet"
    assert CliRunner().invoke(app, command.split()).exit_code == 0
    assert cells(tmp_path)[0]["latency_ms"]["count"] >= 500 and verdicts(tmp_path) == ["met"]
    done = CliRunner().invoke(app, [*command.split(), "-n", "499"])
    assert done.exception.code == "FK-BENCH-TARGET"


@pytest.mark.heavy
@pytest.mark.parametrize(("words", "batch"), [("", 16), ("--batch 3", 3)])
def test_a_model_is_measured_at_its_own_batch_where_no_other_is_asked_for(tmp_path, words, batch):
    command = f"bench tests.lab.models:own_batch {words} --out {tmp_path} {QUICK}"
    assert CliRunner().invoke(app, command.split()).exit_code == 0
    assert [(cell["cell"]["batch"], cell["items"]) for cell in cells(tmp_path)] == [(batch, batch)]


def test_the_command_measures_a_model_of_the_users(measured):
    figures = json.loads((measured / "profile_stats.json").read_text())
    assert [cell["cell"]["batch"] for cell in figures["cells"]] == [1, 2] and figures["models"][0]["params"] == 140
    assert figures["models"][0]["flops_per_item"] == 2 * (12 * 8 + 8 * 4)
    assert figures["models"][0]["weights_bytes"] == 4 * 140
    assert {path.name for path in measured.iterdir()} == {
        "base.json", "profile_stats.json", "profile_summary.csv", "layers.csv", "index.html",
    }  # fmt: skip
