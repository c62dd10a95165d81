"""The rules for connections to buckets and web servers, the same in each process of a run.

They are held in the environment, which child processes inherit. Otherwise all code that opens files, lists or outputs
would have to pass them on. Workers of a Ray cluster get them with the output's store.
"""

import json
import os
from dataclasses import asdict, dataclass
from functools import lru_cache

from pydantic import ConfigDict, with_config

from framekiln.contract.limits import Count, Natural, Positive

LEAST_RATE = 1000
"""Bytes a second, on average after the timeout: a slower server counts as dead."""
_VARIABLE = "FRAMEKILN_NETWORK"


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, kw_only=True)
class Network:
    """The key `network` of a profile. The last four keys concern only `http://` and `https://`."""

    timeout_s: Positive = 10.0  # to connect, and then without a byte; all tries together stay below the lease's minute
    retries: Natural = 3  # retries of a request without an answer, or answered by 429 or 500 to 504
    max_bytes: Count = 1_000_000_000  # most bytes of one file
    user_agent: str = "framekiln"  # put an address into it under which server owners reach you
    robots_tag: bool = True  # respect X-Robots-Tag: noai, noimageai, noindex and noimageindex reject a file
    private_addresses: bool = False  # connect to addresses outside the public Internet

    @property
    def patience_s(self) -> float:
        """The seconds of all tries of a request to a bucket, with the waits between them."""
        return 1.5 * self.timeout_s * (self.retries + 1)

    def use(self) -> None:
        """Apply these rules to this process and its future children."""
        if self == Network():
            os.environ.pop(_VARIABLE, None)
        else:
            os.environ[_VARIABLE] = json.dumps(asdict(self))


def network() -> Network:
    """Return the rules of this process."""
    return _read(os.environ.get(_VARIABLE, "{}"))


@lru_cache(maxsize=1)
def _read(text: str) -> Network:
    return Network(**json.loads(text))
