"""The request for one run, from the command line to the job, and the files that it selects.

`run.json` stores the request and gives it back.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from framekiln.contract.errors import ConfigError, without_secrets
from framekiln.contract.user_files import expand
from framekiln.media.discovery.listing import in_shard, shard
from framekiln.media.discovery.spread import spread_over
from framekiln.media.files import MediaFile
from framekiln.media.units import Unit
from framekiln.output.content_hash import with_digests
from framekiln.output.object_store import Store
from framekiln.output.unit_table import divide_into_units, read_units, sort_units
from framekiln.planning.manifest import PipelineFile, ProfileFile
from framekiln.planning.plan_options import PlanOptions
from framekiln.profiling.tools.profilers import NO_PROFILERS, ProfilerOptions
from framekiln.runtime.run.retry import FailureFilter

_STORED = ("limit", "preview", "shard", "by_content", "profile_name")  # stored unchanged


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """Everything that a run is given. The same request again continues where the last run stopped."""

    inputs: tuple[str, ...] = ()  # folders, globs, file lists or URLs; empty: not given, so only a plan can be made
    output: str = ""  # folder or URL; empty as for `inputs`
    pipeline: PipelineFile
    profile: ProfileFile
    profile_name: str
    options: PlanOptions = field(default_factory=PlanOptions)
    engine: Literal["auto", "local", "ray"] = "auto"  # owner of the processes; not stored, since it changes no result
    address: str | None = None  # address of a running Ray cluster; None: no cluster
    limit: int | None = None  # files
    preview: int | None = None  # files, spread over those within the limit
    shard: tuple[int, int] | None = None  # number from 0, and the number of shards
    by_content: bool = False  # detect changed files by content instead of size and time
    retry: FailureFilter | None = None  # failures of earlier runs to retry; not stored
    profilers: ProfilerOptions = NO_PROFILERS  # not stored
    arguments: tuple[str, ...] = ()  # arguments of the command; empty for Python
    call: str = ""  # the call in Python; empty for a command

    def require(self, *names: str) -> None:
        """Check that the named paths are set.

        Raises ConfigError: a path is given neither on the command line nor in the profile or the pipeline file.
        """
        for name in names:
            if not (self.inputs if name == "input" else self.output):
                raise ConfigError(
                    f"No {name} was given: give it as in `framekiln run INPUT OUTPUT`, by --{name} PATH, or by "
                    f"`{name}: PATH` in the profile or the pipeline file.",
                    code={"input": "FK-NO-INPUT", "output": "FK-NO-OUTPUT"}[name],
                )

    def to_record(self) -> dict[str, Any]:
        """Return the keys of run.json that come from this request.

        Shown URLs have no passwords; the input keeps them, since `retry` reads it again.
        """
        return {
            "input": next(iter(self.inputs), ""),
            **({"more_inputs": list(self.inputs[1:])} if self.inputs[1:] else {}),
            "output": without_secrets(self.output),
            "arguments": [without_secrets(word) for word in self.arguments],
            **({"call": without_secrets(self.call)} if self.call else {}),
            **{name: getattr(self, name) for name in _STORED},
            "choices": asdict(self.options),
            "profile": self.profile.model_dump(by_alias=True, exclude_none=True),
            "pipeline": self.pipeline.model_dump(by_alias=True, exclude_none=True),
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any], output: str) -> "RunRequest":
        """Return the request of the run that wrote a run.json, without options that change no results.

        Relative paths are resolved against the folder that the run was started in. `output` is the output's present
        place.

        Raises KeyError, TypeError, ValueError: another version of Framekiln wrote it.
        """
        folder, options = Path(record["folder"]), dict(record["choices"])
        sources = [str(source) for source in recorded_inputs(record)]
        sources = [each if "://" in each else str(folder / expand(each)) for each in sources]
        options |= {key: tuple(options[key]) for key in ("stages", "settings")}
        options |= {key: folder / options[key] for key in ("weights_dir", "calibration") if options.get(key)}
        return cls(
            **{name: record[name] for name in _STORED} | {"shard": tuple(record["shard"]) if record["shard"] else None},
            inputs=tuple(sources),
            output=output,
            pipeline=PipelineFile.model_validate(record["pipeline"]),
            profile=ProfileFile.model_validate(record["profile"]),
            options=PlanOptions(**options),
        )


def recorded_inputs(record: Mapping[str, Any]) -> list[Any]:
    """Return all inputs in a run.json. Raises KeyError: another version of Framekiln wrote it."""
    return [record["input"], *(record.get("more_inputs") or ())]


@dataclass(frozen=True, kw_only=True)
class RunUnits:
    """The units of a run, and the files with rows in its tables."""

    known: Sequence[Unit]  # units from earlier runs
    fresh: Sequence[Unit]
    wanted: frozenset[str]  # media ids

    @property
    def all(self) -> list[Unit]:
        return sort_units([*self.known, *self.fresh])


@dataclass(frozen=True, kw_only=True)
class RunFiles:
    """The listed input, and the part of it that a request selects."""

    request: RunRequest
    listing: Sequence[MediaFile]

    @property
    def chosen(self) -> Sequence[MediaFile]:
        """The files within the request's limit, in all shards. For a preview, files spread over them."""
        files, preview = self.listing[: self.request.limit], self.request.preview
        return files if preview is None else spread_over(files, preview)

    @property
    def selected(self) -> Sequence[MediaFile]:
        """The chosen files of the request's shard."""
        share = self.request.shard
        return self.chosen if share is None else shard(self.chosen, *share)

    def _check_preview(self, store: Store) -> None:
        """Reject a preview of an output with other files: it would remove their tables and compute whole units."""
        if self.request.preview is None:
            return
        others = {media.media_id for media in self.listing} - {media.media_id for media in self.chosen}
        if any(media.media_id in others for unit in read_units(store) for media in unit.media):
            raise ConfigError(
                f"{store.root!r} has results of other files than this preview's: `framekiln plan` estimates from them. "
                "For another preview name a new output, or more files.",
                code="FK-PREVIEW-OUTPUT",
            )

    def identified(self, store: Store, on_message: Callable[[str], None], *, keep: bool) -> "RunFiles":
        """Add digests to the files if the request detects changes by content.

        With `keep` the digests are written into the output.

        Raises ConfigError: the preview's output holds other files.
        """
        self._check_preview(store)
        if not self.request.by_content:
            return self
        hashed = with_digests(store, list(self.selected), keep=keep, on_message=on_message)
        listing = {file.media_id: file for file in self.listing} | {file.media_id: file for file in hashed}
        return replace(self, listing=list(listing.values()))

    def units(self, store: Store, slots: int) -> RunUnits:
        """Return the selected files as units; `slots` units are decoded at the same time."""
        chosen = list(self.chosen)
        known, fresh = divide_into_units(store, list(self.listing), chosen, slots, self.request.shard)
        wanted = frozenset(file.media_id for file in chosen)  # a unit of this shard may hold other shards' files
        return RunUnits(known=known, fresh=fresh, wanted=wanted)

    def deletable(self, store: Store) -> frozenset[str] | None:
        """Return the names of units with files that this run may delete; None: all."""
        share = self.request.shard
        if share is None:
            return None
        return frozenset(unit.name for unit in read_units(store) if in_shard(unit.media[0].media_id, *share))
