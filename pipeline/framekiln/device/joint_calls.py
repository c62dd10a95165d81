"""Model calls of several packets, joined into full batches and made by the one thread that owns the device.

A process on a GPU works on several packets at a time, each in a thread of its own. While one waits for the model,
others prepare their input or write their results. At a model call, a thread hands its rows over and waits. The thread
here takes rows of all waiting calls until a batch is full, in the order in which they came, and gives each call its
rows back. Where no batch is full, the fullest one is computed once a row has waited for the linger time, or at once if
no thread is left that could add rows: the others may still fill.

A batch that fails is computed again call by call. So an error reaches the packet that caused it, and a row's failure
is found in its own packet, as without this module.

Tensors of a call are n ...; the rows of a batch are consecutive rows of several calls.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from framekiln.contract.phases import running_clock
from framekiln.device.failures import is_out_of_memory, release_memory
from framekiln.device.streams import Mark, thread_stream

if TYPE_CHECKING:
    import torch

T = TypeVar("T")

_AHEAD = 2  # batches launched and not finished: one that runs, and one so that the device never waits for the next
_PASSED = 8  # batches of others before the oldest call's; from 4 to 32, the share of a simulated GPU stayed within .01


class Model(Protocol):
    """A function of tensors with a common first axis: `framekiln.device.model.Batches`."""

    def most(self, tensors: Sequence[torch.Tensor]) -> int:
        """Return the most rows of a batch of rows of this size."""

    def direct(self, *tensors: torch.Tensor) -> torch.Tensor:
        """Return the function's result for all rows."""

    def halve(self, tensors: Sequence[torch.Tensor]) -> None:
        """Halve the rows of a batch, after one with rows of this size did not fit into the memory."""


@dataclass(eq=False)
class _Call:
    """One thread's call of a model."""

    model: Model
    tensors: tuple[torch.Tensor, ...]
    ready: Mark  # when its tensors are computed
    since: float
    taken: int = 0  # rows that are in a batch
    passed: int = 0  # batches in a row that it had no part in
    results: list[torch.Tensor] = field(default_factory=list)
    batches: list[tuple[Mark, Mark, float]] = field(default_factory=list)  # begin, end, and this call's share of it
    error: BaseException | None = None
    done: bool = False

    @property
    def rows(self) -> int:
        return len(self.tensors[0])

    @property
    def most(self) -> int:
        """Most rows of a batch of such rows."""
        return self.model.most(self.tensors)

    @property
    def key(self) -> object:
        """Calls with equal keys fit into one batch."""
        return id(self.model), *((tensor.shape[1:], tensor.dtype) for tensor in self.tensors)

    def seconds(self) -> float:
        """Return the device's seconds for this call, its share of each batch; waits until they are known."""
        return sum(share * begin.seconds_to(end) for begin, end, share in self.batches)


_Part = tuple[_Call, int, int]
"""A call, and its first row and the row after its last one in a batch."""


class JointCalls:
    """The owner of the device in a process, and the queue of calls to it."""

    def __init__(self, device: str, linger_s: float) -> None:
        """Start the thread; `linger_s` is the longest wait of a row for others to fill its batch."""
        self._device, self._linger_s = device, linger_s
        self._changed = threading.Condition()
        self._calls: list[_Call] = []  # waiting ones, oldest first
        self._alone: list[Callable[[], None]] = []
        self._working = self._blocked = 0  # threads with a packet; those of them that wait here
        self._closed = False
        self._thread = threading.Thread(target=self._serve, daemon=True, name="device")
        self._thread.start()

    def close(self) -> None:
        """End the thread, once nobody waits for it."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    @contextmanager
    def packet(self) -> Iterator[None]:
        """Work on a packet in this block; what it launches on the device has a stream of this thread's own."""
        with self._changed:
            self._working += 1
        try:
            with thread_stream(self._device).current():
                yield
        finally:
            with self._changed:
                self._working -= 1
                self._changed.notify_all()

    def takes(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Return whether `call` is for these tensors: not in the owner's own thread, nor on another device."""
        return tensors[0].device.type == self._device and threading.current_thread() is not self._thread

    def call(self, model: Model, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return a model's result for all rows; other threads' rows may be computed with them.

        The stage's clock counts the wait as `queue`, but for the device's own seconds.
        """
        import torch

        stream = thread_stream(self._device)
        call = _Call(model, tuple(tensors), stream.mark(), time.monotonic())
        clock = running_clock()
        clock.begin()
        try:
            with self._changed:
                self._calls.append(call)
                self._wait(lambda: call.done)
            if call.error is not None:
                raise call.error
            for _, end, _ in call.batches:
                end.wait()  # here, since a wait in the download that follows would keep a core busy
        finally:
            clock.end("queue")
        clock.move("queue", "infer", call.seconds)
        for result in call.results:
            stream.uses(result)
        return call.results[0] if len(call.results) == 1 else torch.cat(call.results)

    def alone(self, work: Callable[[], T]) -> T:
        """Return the result of work that the owner of the device does with no other call beside it."""
        if threading.current_thread() is self._thread:
            return work()
        outcome: list[T] = []
        errors: list[BaseException] = []
        done = threading.Event()

        def run() -> None:
            try:
                outcome.append(work())
            except BaseException as error:  # raised again in the thread that asked
                errors.append(error)
            done.set()

        with self._changed:
            self._alone.append(run)
            self._wait(done.is_set)
        if errors:
            raise errors.pop()
        return outcome.pop()

    def _wait(self, is_done: Callable[[], bool]) -> None:
        """Wait for the owner; the lock is held."""
        self._blocked += 1
        self._changed.notify_all()
        self._changed.wait_for(is_done)
        self._blocked -= 1

    def _serve(self) -> None:
        launched: list[Mark] = []
        with thread_stream(self._device).current():
            while True:
                if len(launched) >= _AHEAD:
                    with suppress(Exception):  # of a lost GPU: the next launch raises it too, and a call gets it
                        launched.pop(0).wait()
                with self._changed:
                    self._changed.wait_for(lambda: self._closed or self._alone or self._calls)
                    if self._closed:
                        return
                    batch = [] if self._alone else self._next()
                if self._alone:
                    self._serve_alone()
                elif batch:
                    launched.append(self._compute(batch))

    def _serve_alone(self) -> None:
        self._alone[0]()
        with self._changed:
            self._alone.pop(0)
            self._changed.notify_all()

    def _next(self) -> list[_Part]:
        """Return the next batch, or wait for more rows and return an empty one; the lock is held."""
        groups: dict[object, list[_Call]] = {}
        for call in self._calls:
            groups.setdefault(call.key, []).append(call)
        oldest, fullest = self._calls[0], max(groups.values(), key=_fill)  # of equals, that with the oldest call
        left = oldest.since + self._linger_s - time.monotonic()
        if _fill(fullest) < 1 and left > 0 and self._blocked < self._working:
            self._changed.wait(left)
            return []
        return self._take(groups[oldest.key] if oldest.passed >= _PASSED else fullest)

    def _take(self, group: Sequence[_Call]) -> list[_Part]:
        room, parts = group[0].most, []
        for call in group:
            count = min(room, call.rows - call.taken)
            parts.append((call, call.taken, call.taken + count))
            call.taken += count
            room -= count
            if call.taken == call.rows:
                self._calls.remove(call)
            if not room:
                break
        for call in self._calls:
            call.passed = 0 if call is parts[-1][0] else call.passed + 1
        return parts

    def _compute(self, parts: Sequence[_Part]) -> Mark:
        """Compute a batch, give each call its rows, and return the mark of its end."""
        parts = [part for part in parts if part[0].error is None]
        try:
            end = self._launch(parts) if parts else Mark()
        except Exception as error:
            error.__traceback__ = None  # its frames hold what filled the memory
            self._separately(parts, error)
            end = Mark()  # not in the stream: on a lost GPU that raises
        with self._changed:
            for call, _, stop in parts:
                call.done = call.done or stop == call.rows or call.error is not None
            self._calls = [call for call in self._calls if call.error is None]
            self._changed.notify_all()
        return end

    def _separately(self, parts: Sequence[_Part], error: Exception) -> None:
        """Compute the parts of a batch that failed one by one; a call that fails alone gets its error."""
        is_full = is_out_of_memory(error)
        if len(parts) == 1:
            parts[0][0].error = error
            return
        if is_full:
            parts[0][0].model.halve(parts[0][0].tensors)
            release_memory()
        for part in parts:
            try:
                self._launch([part])
            except Exception as own:
                own.__traceback__ = None
                part[0].error = own

    def _launch(self, parts: Sequence[_Part]) -> Mark:
        import torch

        stream = thread_stream(self._device)
        total = sum(stop - start for _, start, stop in parts)
        for call, _, _ in parts:
            stream.wait_for(call.ready)
            for tensor in call.tensors:
                stream.uses(tensor)
        with torch.inference_mode():
            columns = zip(*(_rows(call, start, stop) for call, start, stop in parts), strict=True)
            tensors = [column[0] if len(column) == 1 else torch.cat(column) for column in columns]
            begin = stream.mark(timed=True)
            result = parts[0][0].model.direct(*tensors)
            end = stream.mark(timed=True)
        place = 0
        for call, start, stop in parts:
            call.results.append(result[place : place + stop - start])
            call.batches.append((begin, end, (stop - start) / total))
            place += stop - start
        return end


def _fill(calls: Sequence[_Call]) -> float:
    """Return the share of a batch that calls with equal keys fill, at most 1."""
    return min(1.0, sum(call.rows - call.taken for call in calls) / calls[0].most)


def _rows(call: _Call, start: int, stop: int) -> list[Any]:
    return [tensor[start:stop] for tensor in call.tensors]
