"""The child process of a bench's cells and of a calibration's trials: one at a time, replaced where a call ends it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Self

from framekiln.contract.errors import ConfigError
from framekiln.runtime.recovery.captured_error import CapturedError
from framekiln.runtime.recovery.child_process import ChildDied, ChildProcess


class CellChild:
    """At most one child process, which holds an object and calls its methods."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._process: ChildProcess | None = None

    @classmethod
    def of(cls, held: object, environment: Mapping[str, str] | None = None) -> Self:
        """Return one that has started, for a block."""
        child = cls()
        child.start(held, environment)
        return child

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def is_there(self) -> bool:
        """True if there is a child that no call has ended."""
        return self._process is not None

    def start(self, held: object, environment: Mapping[str, str] | None = None) -> None:
        """End the child, and start another one that holds an object, with variables of its environment."""
        self.end()
        self._process = self._stack.enter_context(ChildProcess(held, environment))

    def call(self, method: str, *arguments: object, timeout_s: float) -> Any:
        """Call a method of what the child holds; the answer is what it returned, raised, or died of."""
        assert self._process is not None
        answer = self._process.call(method, *arguments, timeout_s=timeout_s)
        if isinstance(answer, ChildDied):
            self.end()
        return answer

    def end(self) -> None:
        """End the child, if there is one."""
        self._process = None
        self._stack.close()


def reason_of(answer: ChildDied | CapturedError) -> str:
    """Return why a call gave nothing, in one line."""
    if isinstance(answer, CapturedError):
        kind = "" if answer.kind == ConfigError.__name__ else answer.kind
        return ": ".join(filter(None, [kind, " ".join(answer.message.split())]))
    last = answer.last_lines.splitlines()[-1:] if answer.how.startswith("exit") else []
    return ": ".join([f"its process died ({answer.how})", *last])
