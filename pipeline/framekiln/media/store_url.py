"""URLs of object stores, such as `s3://bucket/key`. A key is taken as it is: "#", "%" and "?" are letters of it.

So stores print keys, and no entry of a list reads another object. Only options of the store that follow the last "?"
are no part of the key, as in `s3://bucket/key?endpoint_override=127.0.0.1:9000&scheme=http`.
"""

import re
from typing import NamedTuple
from urllib.parse import parse_qsl

_PARTS = re.compile(r"([^:/]*)://([^/?#]*)(.*)", re.DOTALL)
_OPTION = re.compile(
    "(scheme|endpoint_override|region|allow_bucket_(creation|deletion)|tls_ca_(file|dir)_path|tls_verify_certificates"
    "|smart_defaults|allow_delayed_open|retry_limit_seconds|project_id)=.*",
    re.DOTALL,
)  # of Arrow's S3 and GCS


class StoreUrl(NamedTuple):
    """The parts of a store's URL."""

    scheme: str
    server: str  # the bucket, with a name and password before it
    key: str  # with the "/" before it
    query: str  # options

    @classmethod
    def parse(cls, url: str) -> "StoreUrl":
        """Return the parts. Raises ValueError: it is no URL."""
        if (match := _PARTS.fullmatch(url)) is None:
            raise ValueError(f"{url!r} is no URL")
        scheme, server, place = match.groups()
        key, mark, query = place.rpartition("?")
        if not mark or not all(map(_OPTION.fullmatch, query.split("&"))):
            key, query = place, ""
        return cls(scheme.lower(), server, key, query)

    @property
    def bucket(self) -> str:
        return self.server.rpartition("@")[2]

    @property
    def inner(self) -> str:
        """The path inside the file system."""
        return self.bucket + self.key

    @property
    def endpoint(self) -> str:
        """The server that the options name, without scheme; empty for the store's own one."""
        return dict(parse_qsl(self.query)).get("endpoint_override", "").rstrip("/").rpartition("/")[2]

    @property
    def root(self) -> str:
        """The URI of the file system; an option without a value is none."""
        query = "&".join(pair for pair in self.query.split("&") if not pair.endswith("="))
        return f"{self.scheme}://{self.server}/" + (f"?{query}" if query else "")

    @property
    def url(self) -> str:
        """The URL; an empty option follows a key that itself ends like options."""
        url = f"{self.scheme}://{self.server}{self.key}"
        query = self.query or ("scheme=" if StoreUrl.parse(url).query else "")
        return f"{url}?{query}" if query else url

    def at(self, inner: str) -> "StoreUrl":
        """Return the URL of another path inside the file system."""
        return self._replace(key=inner[len(self.bucket) :])
