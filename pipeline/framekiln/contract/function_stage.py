"""A plain function as a stage: the short way to add columns where one row is computed at a time.

A class of its own (`framekiln.contract.Stage`) does the rest: settings, models, batches, clips, tables, drawings.

Its version follows from its code and from all that it uses (`code_version`).
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from framekiln.contract.code_version import code_version
from framekiln.contract.columns import SOUND, field, is_pixel_column, views
from framekiln.contract.drawing import Drawing
from framekiln.contract.errors import ConfigError, ContractError
from framekiln.contract.fitting import check_fit
from framekiln.contract.stage import Stage

Outputs = Mapping[str, pa.DataType] | Sequence[pa.Field]
"""Arrow types by column, or fields, which have a description and a unit (`framekiln.field`)."""


class FunctionStage(Stage):
    """A stage that calls a function on each row."""

    function: ClassVar[Callable[..., Any]]
    fixed_version: ClassVar[int | str | None] = None  # None: a hash of the code

    def __init__(self, *given: Any) -> None:
        """Take the configuration of a stage, which is empty. Raises ConfigError: it is called as the function."""
        if given and not isinstance(given[0], Stage.Config):
            problem = f"{type(self).__name__!r} is a stage; try its function as {type(self).__name__}.function(...)."
            raise ConfigError(problem, code="FK-STAGE-FUNCTION")
        super().__init__(*given)

    @property
    def version(self) -> int | str:  # type: ignore[override]  # a class cannot compute a ClassVar when it is asked for
        """The given version, else one that changes with the function's code and with what it declares."""
        if self.fixed_version is not None:
            return self.fixed_version
        return code_version(self.function, self.inputs, [(item.name, str(item.type)) for item in self.outputs])

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Call the function on each row of `batch`, in order."""
        columns = [_read_values(name, batch[name]) for name in self.inputs]
        with self.phase("infer"):
            results = [self._make_row(self.function(*row)) for row in zip(*columns, strict=True)]
        values = zip(*results, strict=True) if results else [()] * len(self.outputs)
        arrays = [_make_array(column, item.type) for column, item in zip(values, self.outputs, strict=True)]
        return pa.table(arrays, schema=self.outputs)

    def _make_row(self, result: Any) -> Sequence[Any]:
        names = self.outputs.names
        if len(names) == 1 and (not isinstance(result, Mapping) or pa.types.is_nested(self.outputs.field(0).type)):
            return (result,)
        if isinstance(result, Mapping) and result.keys() == set(names):
            return [result[name] for name in names]
        if isinstance(result, tuple) and len(result) == len(names):
            return result
        told = f"a tuple of {len(result)}" if isinstance(result, tuple) else f"a {type(result).__name__}"
        told = f"a dict of {', '.join(map(str, result))}" if isinstance(result, Mapping) else told
        problem = f"{type(self).__name__} returned {told}; return a tuple or a dict of {', '.join(names)}."
        raise ContractError(problem, code="FK-UNDECLARED-COLUMNS")

    def draw(self, row: Mapping[str, Any]) -> Drawing | None:
        """Return numbers and texts as the caption of the frame."""
        shown = {name: value for name, value in row.items() if isinstance(value, bool | int | float | str)}
        texts = [f"{name} {value:.4g}" if type(value) is float else f"{name} {value}" for name, value in shown.items()]
        return Drawing(caption=", ".join(texts)) if texts else None


def stage(
    *, inputs: str | Sequence[str], outputs: Outputs, version: int | str | None = None
) -> Callable[[Callable[..., Any]], type[FunctionStage]]:
    """Make a function a stage of the first pass, called once for each frame.

    It becomes a `Stage` class of its name, for `use: module:name` in a pipeline file and for `stages=[name]` of
    `framekiln.run`. The function itself is `name.function`.

    Args:
        inputs: columns that the function gets, in the order of its parameters. Pixels (`frame`, `frame_224`) are
            arrays (h w 3, RGB uint8, read-only), `sound` is an array of int16 or None, others are Python values.
        outputs: columns that it adds. For one it returns the value, for several a tuple or a dict; None is null.
        version: a new one has old results computed again. Without it, an edit of the function or its helpers does.

    Raises:
        ConfigError: the function has no name or other parameters than `inputs`, or there are no outputs.

    >>> import numpy as np
    >>> @stage(inputs="frame_224", outputs={"brightness": pa.float32()})
    ... def brightness(image):
    ...     return image.mean()
    >>> brightness.function(np.full((2, 2, 3), 7))
    np.float64(7.0)
    """
    names = (inputs,) if isinstance(inputs, str) else tuple(inputs)

    def as_stage(function: Callable[..., Any]) -> type[FunctionStage]:
        _check(function, names)
        body = {
            "__doc__": function.__doc__,
            "__module__": function.__module__,
            "__qualname__": function.__qualname__,
            "function": staticmethod(function),
            "inputs": names,
            "outputs": _make_schema(function, outputs),
            "fixed_version": version,
        }
        return type(function.__name__, (FunctionStage,), body)

    return as_stage


def _check(function: Callable[..., Any], inputs: Sequence[str]) -> None:
    name = getattr(function, "__name__", type(function).__name__)
    if not inspect.isfunction(function) or not name.isidentifier():
        raise ConfigError(
            f"framekiln.stage was put on {name}, which is not a function with a name; write `def NAME(...)` below it.",
            code="FK-STAGE-FUNCTION",
        )
    try:
        inspect.signature(function).bind(*inputs)
    except TypeError as error:
        raise ConfigError(
            f"The stage {name!r} cannot be called with its inputs {', '.join(inputs)} ({error}); give the function one "
            "parameter for each input.",
            code="FK-STAGE-FUNCTION",
        ) from error


def _make_schema(function: Callable[..., Any], outputs: Outputs) -> pa.Schema:
    """Return the columns. A column without a description gets the first line of the function's docstring."""
    about = (inspect.getdoc(function) or "").partition("\n")[0] or f"result of {function.__name__}"
    pairs = outputs.items() if isinstance(outputs, Mapping) else ()
    if wrong := [f"{name}: {kind!r}" for name, kind in pairs if not isinstance(kind, pa.DataType)]:
        raise ConfigError(
            f"The stage {function.__name__!r} has outputs of no Arrow type ({', '.join(wrong)}); write one such as "
            "pyarrow.float32().",
            code="FK-STAGE-FUNCTION",
        )
    fields = [field(*pair, about) for pair in pairs] if isinstance(outputs, Mapping) else list(outputs)
    if not fields or not all(isinstance(item, pa.Field) for item in fields):
        problem = f"The stage {function.__name__!r} has no outputs; give them as {{'NAME': pyarrow.float32()}}."
        raise ConfigError(problem, code="FK-STAGE-FUNCTION")
    return pa.schema(fields)


def _make_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return values as an array. Raises ArrowInvalid: they do not fit."""
    array = pa.array(values, kind)
    check_fit(values, kind)
    return array


def _read_values(name: str, column: pa.ChunkedArray) -> Sequence[Any]:
    if is_pixel_column(name):
        return views(column)
    if column.type == SOUND:
        return [value.values.to_numpy() if value.is_valid else None for value in column]
    values: list[Any] = column.to_pylist(maps_as_pydicts="lossy")  # names of `tags` are different
    return values
