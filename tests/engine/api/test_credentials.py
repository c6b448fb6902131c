"""Splitting credentials off a URL."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from framepool.engine.api.credentials import split_credentials


@pytest.mark.parametrize(
    ("typed", "source", "username", "password"),
    [
        ("rtsp://user:p@ss@127.0.0.1:1/c", "rtsp://127.0.0.1:1/c", "user", "p@ss"),
        ("rtsp://user:p#ss@127.0.0.1:1/c", "rtsp://127.0.0.1:1/c", "user", "p#ss"),
        ("rtsp://user:p/ss@127.0.0.1:1/c", "rtsp://127.0.0.1:1/c", "user", "p/ss"),
        ("rtsp://user:p?ss^@127.0.0.1:1/c", "rtsp://127.0.0.1:1/c", "user", "p?ss^"),
        ("rtsp://user:p%40ss@127.0.0.1:1/c", "rtsp://127.0.0.1:1/c", "user", "p@ss"),
        ("rtsp://user:a:b@[::1]:554/c", "rtsp://[::1]:554/c", "user", "a:b"),
        ("rtsp://user@cam/c", "rtsp://cam/c", "user", ""),
        ("rtsp://cam/c@1", "rtsp://cam/c@1", "", ""),
        ("rtsp://cam:554/c@1", "rtsp://cam:554/c@1", "", ""),
        ("rtsp://[::1]/c@1", "rtsp://[::1]/c@1", "", ""),
        ("rtsp://user:pw@cam/c@1", "rtsp://cam/c@1", "user", "pw"),
        ("/videos/a@b.mp4", "/videos/a@b.mp4", "", ""),
        ("gate.mp4", "gate.mp4", "", ""),
    ],
)
def test_f6_credentials_as_people_type_them(typed: str, source: str, username: str, password: str) -> None:
    split = split_credentials(typed)
    assert (split.source, split.username, split.password) == (source, username, password)
    assert not password or password not in repr(split)


@given(st.text(min_size=1), st.text(min_size=1))
def test_encoded_credentials_come_back(username: str, password: str) -> None:
    username, password = (text.encode(errors="replace").decode() for text in (username, password))
    split = split_credentials(f"rtsp://{quote(username, safe='')}:{quote(password, safe='')}@cam/x")
    assert (split.source, split.username, split.password) == ("rtsp://cam/x", username, password)
