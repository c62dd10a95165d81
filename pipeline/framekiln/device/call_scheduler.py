"""The owner of a process's calls. It decides which run beside each other, which run apart, and who calls the models.

A process works on several packets at a time, each in a thread that calls its stages through this object. Stages call
their models through it too. On the CPU each thread calls them itself. On a GPU an owner thread makes all model calls:
it joins rows of waiting calls to full batches, and gives each call its rows back. Meanwhile other threads prepare and
write.

A call runs apart if it may kill its process, or if memory ran out. A call beside it would be blamed for the death, or
would take the memory.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from typing import TypeVar

from framekiln.contract.phases import running_clock
from framekiln.device.call_queue import Call, Model, Part, next_batch
from framekiln.device.failures import OwnerEndedError, is_out_of_memory, release_memory
from framekiln.device.lazy import torch
from framekiln.device.streams import Mark, thread_stream

T = TypeVar("T")

_AHEAD = 2  # batches launched and not finished: the running one, and one more so that the device never waits
_SWITCH_S = 2e-4  # s, of the interpreter (5 ms by default): the owner thread waits that long before a launch


class CallScheduler:
    """The calls of a process: of its stages, and of their models.

    A new call runs at once if none runs or waits apart. Else it waits until those have returned. Once the owner thread
    has ended, model calls raise the reason.
    """

    def __init__(self, device: str = "cpu", linger_s: float | None = None) -> None:
        """Start an owner thread if `linger_s` is given.

        `device`: the owner thread's; models on other devices are called by the asking thread. `linger_s`: longest wait
        of a row for others to fill its batch.
        """
        self._device = "cpu" if linger_s is None else device
        self._changed = threading.Condition()
        self._beside = 0  # calls running beside each other
        self._apart = list[object]()  # calls apart: the first runs, or waits for those beside each other
        self._in_use: set[object] = set()  # stages in a call that are not thread-safe
        self._packets = self._blocked = 0  # threads with a packet; threads waiting here
        self._calls, self._tasks = list[Call](), deque[Callable[[], None]]()  # for the owner thread, oldest first
        self._linger_s = linger_s or 0.0
        self._ended: BaseException | None = None
        self._owner: threading.Thread | None = None
        self.has_owner = linger_s is not None  # an owner thread calls the models
        if self.has_owner:
            sys.setswitchinterval(_SWITCH_S)
            self._owner = threading.Thread(target=self._serve_on_stream, daemon=True, name="device")
            self._owner.start()

    def close(self) -> None:
        """End the owner thread once nobody waits for it; later model calls raise."""
        with self._changed:
            self._tasks.append(partial(sys.exit, "it was closed"))
            self._changed.notify_all()
        if self._owner is not None:
            self._owner.join()

    @contextmanager
    def packet(self) -> Iterator[None]:
        """Work on a packet in this block; this thread's work on the device gets a stream of its own."""
        with self._changed:
            self._packets += 1
        try:
            with thread_stream(self._device).current():
                yield
        finally:
            with self._changed:
                self._packets -= 1
                self._changed.notify_all()

    def beside(self, work: Callable[[], T], alone_in: object = None, *, owned: bool = False) -> T:
        """Return the result of work that runs beside other work, except work `alone_in` the same thing.

        `owned`: it has the models to itself: the owner thread does it between two batches.
        """
        alone_in = alone_in or object()
        with self._changed:
            self._wait(lambda: not (self._apart or alone_in in self._in_use))
            self._beside += 1
            self._in_use.add(alone_in)
        try:
            return self._own(work) if owned else work()
        finally:
            with self._changed:
                self._beside -= 1
                self._in_use.discard(alone_in)
                self._changed.notify_all()

    def apart(self, work: Callable[[], T]) -> T:
        """Return the result of work that runs with no other beside it, in the owner thread if there is one."""
        turn = object()
        try:
            with self._changed:
                self._apart.append(turn)
                self._wait(lambda: self._apart[0] is turn and not self._beside)
            return self._own(work)
        finally:  # Ctrl-C may end the wait too
            with self._changed:
                self._apart = [other for other in self._apart if other is not turn]
                self._changed.notify_all()

    def _own(self, work: Callable[[], T]) -> T:
        """Return the result of work that the owner thread, if there is one, does between two batches."""
        if self._owner in (None, threading.current_thread()):
            return work()
        future = Future[T]()

        def run() -> None:
            try:
                future.set_result(work())
            except BaseException as error:  # raised again in the thread that asked
                future.set_exception(error)
            with self._changed:
                self._changed.notify_all()

        with self._changed:
            self._tasks.append(run)
            try:
                self._wait(lambda: future.done() or self._ended is not None)
            finally:
                if run in self._tasks:  # Ctrl-C: nobody waits for it
                    self._tasks.remove(run)
        return future.result() if future.done() else work()  # without an owner its model calls raise the reason

    def call(self, model: Model, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return a model's result for all rows. An owner thread may compute them together with other threads' rows.

        The stage's clock counts the wait as `queue`, except the device's own seconds.

        Raises OwnerEndedError: the owner thread has ended.
        """
        is_elsewhere = tensors[0].device.type != self._device
        if is_elsewhere or self._owner in (None, threading.current_thread()):
            return model.direct(*tensors)
        stream = thread_stream(self._device)
        call = Call(model, tuple(tensors), stream.mark(), time.monotonic())
        clock = running_clock()
        clock.begin()
        try:
            with self._changed:
                self._calls.append(call)
                self._wait(lambda: call.done or self._ended is not None)
            if self._ended is not None and not call.done:
                raise OwnerEndedError(self._ended) from self._ended
            if call.error is not None:
                raise call.error
            for _, end, _ in call.batches:
                end.wait()  # waits here: a wait in the download that follows would keep a core busy
        finally:
            clock.end("queue")
        clock.move("queue", "infer", call.seconds)
        for result in call.results:
            stream.uses(result)
        return call.results[0] if len(call.results) == 1 else torch.cat(call.results)

    def _wait(self, is_done: Callable[[], bool]) -> None:
        """Wait for other threads; the lock is held."""
        if is_done():
            return
        self._blocked += 1
        self._changed.notify_all()
        try:
            self._changed.wait_for(is_done)
        finally:
            self._blocked -= 1

    def _serve_on_stream(self) -> None:
        try:
            with thread_stream(self._device).current():
                self._serve()
        except BaseException as error:  # an error of the device outside of any call, or of a model that ends its thread
            with self._changed:
                self._ended = error
                self._changed.notify_all()

    def _serve(self) -> None:
        launched: list[Mark] = []
        while True:
            if len(launched) >= _AHEAD:
                with suppress(Exception):  # an error of a lost GPU: the next launch raises it too, in a call
                    launched.pop(0).wait()
            with self._changed:
                self._changed.wait_for(lambda: self._tasks or self._calls)
                task = self._tasks.popleft() if self._tasks else None
                batch: Sequence[Part] = []
                if task is None:
                    found = next_batch(self._calls, self._linger_s, may_grow=self._blocked < self._packets)
                    if isinstance(found, float):
                        self._changed.wait(found)  # waits for more rows
                    else:
                        batch = found
            if task is not None:
                task()
            elif batch:
                try:
                    launched.append(_launch(batch, self._device))
                except Exception as error:
                    launched.append(_separate(batch, error, self._device))
                with self._changed:
                    for call, _, stop in batch:
                        call.done = stop == call.rows or call.error is not None
                    self._calls = [call for call in self._calls if not call.done]
                    self._changed.notify_all()


def _separate(parts: Sequence[Part], error: Exception, device: str) -> Mark:
    """Compute the calls of a failed batch one by one; a call that fails alone gets its error."""
    error.__traceback__ = None  # its frames hold the tensors that filled the memory
    if len(parts) == 1:
        parts[0][0].error = error
        return Mark()  # outside of the stream: on a lost GPU that raises
    if is_out_of_memory(error):
        parts[0][0].model.halve(parts[0][0].tensors)
        release_memory()
    for part in parts:
        try:
            end = _launch([part], device)
        except Exception as own:
            end = _separate([part], own, device)
    return end


def _launch(parts: Sequence[Part], device: str) -> Mark:
    """Compute a batch, give each call its rows, and return the mark of its end."""
    stream = thread_stream(device)
    for call, _, _ in parts:
        stream.wait_for(call.ready)
        for tensor in call.tensors:
            stream.uses(tensor)
    with torch.inference_mode():
        columns = zip(*([t[start:stop] for t in call.tensors] for call, start, stop in parts), strict=True)
        tensors = [column[0] if len(column) == 1 else torch.cat(column) for column in columns]
        begin = stream.mark(timed=True)
        result = parts[0][0].model.direct(*tensors)
        end = stream.mark(timed=True)
    if len(result) != len(tensors[0]):  # otherwise a packet would get another packet's rows
        raise ValueError(f"a model returned {len(result)} rows for {len(tensors[0])}; it must return one for each")
    place = 0
    for call, start, stop in parts:
        count = stop - start
        call.results.append(result[place : place + count])
        call.batches.append((begin, end, count / len(result)))
        place += count
    return end
