"""Types of the values in `run.json`, as far as readers go into them."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

Names = list[str]
Percentiles = Annotated[list[float | None], Field(min_length=3, max_length=3)]


def _check_date(text: str) -> str:
    datetime.fromisoformat(text)
    return text


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")


class _Machine(_Part):
    name: str = ""
    cpus: float = 0.0
    gpus: float = 0.0


class _Placement(_Part):
    device: str
    gpus: float = 0.0
    in_flight: int = 1


class _Step(_Part):
    weights: Names = []
    settings: dict[str, Any] = {}
    placement: _Placement


class _Figures(_Part):
    rows: int
    errors: int = 0
    workers: int
    rows_per_s: float | None = None
    busy_s: float
    set_up_s: float = 0.0
    ms_per_row: float | None = None
    phases_s: dict[str, float] = {}


class _Process(_Part):
    rows: int
    rows_per_s: float | None
    steady_rows_per_s: float | None
    seconds: float
    busy: float
    process_busy: float
    starved: float
    held: float
    parts: dict[str, float]


class _StepProfile(_Process):
    workers: dict[str, _Process]
    calls: int
    call_ms: Percentiles
    row_ms: Percentiles
    phases: dict[str, float]
    vram_peak_gb: float | None
    gpu_use: float | None


class _Room(_Part):
    processes: int
    is_full: bool


class _Throughput(_Part):
    steps: dict[str, _StepProfile] = {}
    rooms: dict[str, _Room] = {}


class _Choices(_Part):
    stages: Names = []
    settings: Names = []
    decode: dict[str, Any] = {}


class _Versions(_Part):
    framekiln: str | None


class _Record(_Part):
    state: Literal["running", "stopped", "finished"] = "finished"
    run: str = ""
    files_done: int = 0
    reason: str = ""
    written: Annotated[str, AfterValidator(_check_date)] = ""
    unfinished: "_Record | None" = None  # a later run; see `runtime.run.progress`
    input: str = ""
    more_inputs: Names = []
    output: str = ""
    limit: int | None = None
    shard: Annotated[list[int], Field(min_length=2, max_length=2)] | None = (
        None  # number from 0, and the number of shards
    )
    profile_name: str = ""
    choices: _Choices = _Choices()
    profile: dict[str, Any] = {}
    pipeline: dict[str, Any] = {}
    started: Annotated[str, AfterValidator(_check_date)] = ""
    seconds: float = 0.0
    arguments: Names = []
    call: str = ""
    folder: str = ""
    decode: dict[str, Any] = {}
    steps: dict[str, _Step] = {}
    skipped: dict[str, Any] = {}
    fetch: str = ""
    fetch_mb: float = 0.0
    dummies: Names = []
    void: Names = []
    waves: list[Names] = []
    reasons: Names = []
    limits: str = ""
    stand_ins: Names = []
    files: int = 0
    frames: int = 0
    errors: dict[str, int] = {}
    passed_over: int = 0
    chosen: dict[str, list[int]] = {}
    figures: dict[str, _Figures] = {}
    throughput: _Throughput = _Throughput()
    notes: dict[str, Any] = {}
    engine: str = ""
    machines: list[_Machine] = []
    python: str = ""
    system: str = ""
    processor: str = ""
    gpu_names: Names = []
    memory_gb: float | None = None
    versions: _Versions = _Versions(framekiln=None)


def wrong_type(record: Mapping[str, Any]) -> str | None:
    """Return the first value of a run.json that has another type than was written, in words; None if all are right.

    Keys may be absent, as earlier versions wrote fewer, and there may be others.
    """
    try:
        _Record.model_validate(record)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return None
