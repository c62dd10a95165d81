"""Names that are appended to a place or cut off it, which is a path or a URL with options."""

from __future__ import annotations

import pytest

from framekiln.contract.store_url import StoreUrl, below, split_place

OPTIONS = "endpoint_override=127.0.0.1:9000&scheme=http"


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("/data/out", "/data/out/x"),
        ("/data/out/", "/data/out/x"),
        ("", "x"),
        ("/", "/x"),
        ("s3://b", "s3://b/x"),
        ("s3://b/out/", "s3://b/out/x"),
        (f"s3://b/out?{OPTIONS}", f"s3://b/out/x?{OPTIONS}"),
        (f"s3://id:key@b/out/?{OPTIONS}", f"s3://id:key@b/out/x?{OPTIONS}"),
        ("s3://b/a?b#c", "s3://b/a?b#c/x"),
        ("s3://b/a?region=x?scheme=", "s3://b/a?region=x/x?scheme="),
        ("file:///data/a%20b", "file:///data/a%20b/x"),
        ("file:///data/a?region=x", "file:///data/a?region=x/x"),
    ],
)
def test_a_name_is_appended_before_the_options(folder, name):
    assert below(folder, "x") == name
    assert below(folder, "x/y") == name.replace("/x", "/x/y") if folder else "x/y"


@pytest.mark.parametrize(
    ("place", "folder", "name"),
    [
        ("x.json", "", "x.json"),
        ("/x.json", "/", "x.json"),
        ("a/b/x.json", "a/b", "x.json"),
        ("there/", "there", ""),
        (f"s3://b/t/x.json?{OPTIONS}", f"s3://b/t?{OPTIONS}", "x.json"),
        ("s3://b/x.json", "s3://b", "x.json"),
        ("s3://b", "s3://b", ""),
        (f"s3://b/t/?{OPTIONS}", f"s3://b/t?{OPTIONS}", ""),
        ("file:///data/x.json", "file:///data", "x.json"),
    ],
)
def test_a_name_is_cut_off_before_the_options(place, folder, name):
    assert split_place(place) == (folder, name)


@pytest.mark.parametrize(
    ("url", "uri"),
    [
        (f"s3://b/a b%20#?c?{OPTIONS}", f"s3://b/a%20b%2520%23%3Fc?{OPTIONS}"),
        ("s3://b/a?region=x?scheme=", "s3://b/a%3Fregion%3Dx"),
        ("file:///a%20b/c?d", "file:///a%20b/c%3Fd"),
    ],
)
def test_a_uri_has_the_letters_of_a_key_quoted(url, uri):
    assert StoreUrl.parse(url).uri == uri
