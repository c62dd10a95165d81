"""URLs of object stores, such as `s3://bucket/key`. A key is taken as it is: "#", "%" and "?" are letters of it.

So stores print keys, and no entry of a list reads another object. Only options of the store that follow the last "?"
are no part of the key, as in `s3://bucket/key?endpoint_override=127.0.0.1:9000&scheme=http`. So no name is appended to
a URL, or cut off it, as to a path. A `file://` URL has no options.
"""

import posixpath
import re
from typing import NamedTuple
from urllib.parse import parse_qsl, quote

_PARTS = re.compile(r"([^:/]*)://([^/?#]*)(.*)", re.DOTALL)
_OPTION = re.compile(
    "(scheme|endpoint_override|region|allow_bucket_(creation|deletion)|tls_ca_(file|dir)_path|tls_verify_certificates"
    "|smart_defaults|allow_delayed_open|retry_limit_seconds|project_id)=.*",
    re.DOTALL,
)  # of Arrow's S3 and GCS
_DISK = "file"


class StoreUrl(NamedTuple):
    """The parts of the URL of a store, or of a file."""

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
        if not mark or scheme.lower() == _DISK or not all(map(_OPTION.fullmatch, query.split("&"))):
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
        """The URI of the file system."""
        return f"{self.scheme}://{self.server}/{self._options}"

    @property
    def url(self) -> str:
        """The URL; an empty option follows a key that itself ends like options."""
        url = f"{self.scheme}://{self.server}{self.key}"
        query = self.query or ("scheme=" if StoreUrl.parse(url).query else "")
        return f"{url}?{query}" if query else url

    @property
    def uri(self) -> str:
        """The URI of the object; to libraries "%", "#" and "?" of a key are no letters."""
        key = quote(self.key, safe="/%" if self.scheme == _DISK else "/")
        return f"{self.scheme}://{self.server}{key}{self._options}"

    @property
    def _options(self) -> str:
        """The options of a URI; one without a value is none."""
        query = "&".join(pair for pair in self.query.split("&") if not pair.endswith("="))
        return f"?{query}" if query else ""

    def at(self, inner: str) -> "StoreUrl":
        """Return the URL of another path inside the file system."""
        return self._replace(key=inner[len(self.bucket) :])

    def below(self, path: str) -> "StoreUrl":
        """Return the URL of a path in this folder."""
        return self._replace(key=f"{self.key.rstrip('/')}/{path}")


def below(folder: str, path: str) -> str:
    """Return the place of a path in a folder, which is a path or a URL; options stay at its end."""
    return StoreUrl.parse(folder).below(path).url if "://" in folder else posixpath.join(folder, path)


def split_place(place: str) -> tuple[str, str]:
    """Return a place's folder, and its name there; both are empty where there are none, as behind a last "/"."""
    if "://" not in place:
        return posixpath.split(place)
    store = StoreUrl.parse(place)
    folder, _, name = store.key.rpartition("/")
    return store._replace(key=folder).url, name
