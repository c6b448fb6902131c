"""Sources as users type them: what may be opened, and that a password is never shown."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from framepool.streams.errors import SourceError, SourceErrorCode
from framepool.streams.source_url import PROTOCOLS, parse_source

CODE = SourceErrorCode
characters = st.characters(codec="utf-8", exclude_characters="\r\n\x00", exclude_categories=("Cs",))
passwords = st.text(characters, min_size=4, max_size=30).filter(lambda text: text.strip() == text)
users = st.text(st.characters(codec="utf-8", categories=("L", "N")), min_size=1, max_size=12)
hosts = st.sampled_from(["cam", "10.0.0.7", "cam.example:554", "[::1]:8554"])
paths = st.sampled_from(["", "/", "/stream", "/a/b?channel=1&subtype=0"])
schemes = st.sampled_from([scheme for scheme in PROTOCOLS if scheme != "file"])


@given(schemes, users, passwords, hosts, paths)
def test_f6_an_encoded_password_is_kept_apart_and_put_back_for_ffmpeg_alone(
    scheme: str, user: str, password: str, host: str, path: str
) -> None:
    spec = parse_source(f"{scheme}://{quote(user, safe='')}:{quote(password, safe='')}@{host}{path}")
    assert (spec.username, spec.password) == (user, password)
    assert spec.target == f"{scheme}://{host}{path}"
    back = urlsplit(spec.effective_url())
    assert unquote(back.username or "") == user
    assert unquote(back.password or "") == password
    assert spec.effective_url().endswith(f"@{host}{path}")


@given(schemes, users, st.text(st.sampled_from("abzAZ09@:/#?&%+ .-_~!$"), min_size=6, max_size=20), hosts)
def test_f6_whatever_unencoded_signs_a_password_holds_it_is_not_shown(
    scheme: str, user: str, password: str, host: str
) -> None:
    assume(password.strip() == password)
    assume("%" not in password)
    assume(not re.search(r"@.*[/?#]", password))  # reads as a host and its path: such a password must be encoded
    secret = f"Q7{password}"  # no port, so that `user:secret` reads as credentials
    spec = parse_source(f"{scheme}://{user}:{secret}@{host}/stream")
    assert spec.password == secret
    assert spec.target == f"{scheme}://{host}/stream"
    for shown in (spec.redacted, repr(spec), str(spec)):
        assert secret not in shown


@given(passwords, users)
def test_credentials_given_apart_go_before_those_of_the_url(password: str, user: str) -> None:
    spec = parse_source("rtsp://old:secret@cam/x", user, password)
    assert (spec.username, spec.password, spec.target) == (user, password, "rtsp://cam/x")
    assert "secret" not in spec.effective_url() or "secret" in password + user


def test_a_token_in_the_query_is_not_shown() -> None:
    spec = parse_source("https://host/live.m3u8?token=s3cret")
    assert spec.redacted == "https://host/live.m3u8"
    assert spec.effective_url() == "https://host/live.m3u8?token=s3cret"


@given(st.text(max_size=60))
def test_any_text_is_a_source_or_a_precise_error(text: str) -> None:
    error: SourceError | None = None
    try:
        assert parse_source(text).scheme in PROTOCOLS
    except SourceError as raised:
        error = raised
    if error is not None:
        assert error.field == "source"
        assert error.code in (CODE.INVALID_SOURCE, CODE.FORBIDDEN_SOURCE, CODE.NOT_FOUND, CODE.INVALID_MEDIA)
        assert len(str(error)) < 600


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("", CODE.INVALID_SOURCE),
        ("  ", CODE.INVALID_SOURCE),
        ("rtsp://cam/a\nb", CODE.INVALID_SOURCE),
        ("rtsp:", CODE.INVALID_SOURCE),
        ("rtsp:cam/x", CODE.INVALID_SOURCE),
        ("rtsp://", CODE.INVALID_SOURCE),
        ("rtsp://u:p@", CODE.INVALID_SOURCE),
        ("rtsp://cam:port/x", CODE.INVALID_SOURCE),
        ("rtsp://cam:99999/x", CODE.INVALID_SOURCE),
        ("http://a b/x", CODE.INVALID_SOURCE),
        ("concat:/etc/passwd|/etc/hosts", CODE.FORBIDDEN_SOURCE),
        ("data:text/plain,hello", CODE.FORBIDDEN_SOURCE),
        ("pipe:0", CODE.FORBIDDEN_SOURCE),
        ("lavfi:testsrc", CODE.FORBIDDEN_SOURCE),
        ("subfile,,start,0,end,9,,:/etc/passwd", CODE.NOT_FOUND),
        ("-i", CODE.INVALID_SOURCE),
        ("/nonexistent/clip.mp4", CODE.NOT_FOUND),
        ("/dev/zero", CODE.FORBIDDEN_SOURCE),
        ("/etc", CODE.FORBIDDEN_SOURCE),
    ],
)
def test_f9_what_may_not_be_opened_is_refused_with_its_code(source: str, code: CODE) -> None:
    with pytest.raises(SourceError) as raised:
        parse_source(source)
    assert raised.value.code is code


def test_f9_a_network_source_can_not_reach_files() -> None:
    for scheme, protocols in PROTOCOLS.items():
        assert ("file" in protocols.split(",")) == (scheme == "file")


def test_f9_files_lie_below_their_roots_whatever_links_say(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (root / "in.mp4").write_bytes(b"x")
    (outside / "out.mp4").write_bytes(b"x")
    (root / "link.mp4").symlink_to(outside / "out.mp4")
    (outside / "back.mp4").symlink_to(root / "in.mp4")
    roots = [root]
    assert parse_source(str(root / "in.mp4"), file_roots=roots).target == str(root / "in.mp4")
    assert parse_source(f"file://{root}/in.mp4", file_roots=roots).is_file
    assert parse_source(str(outside / "back.mp4"), file_roots=roots).target == str(root / "in.mp4")
    for source in (outside / "out.mp4", root / "link.mp4", root / ".." / "outside" / "out.mp4"):
        with pytest.raises(SourceError, match=r"files may only be read below .*sources\.file_roots") as raised:
            parse_source(str(source), file_roots=roots)
        assert raised.value.code is CODE.FORBIDDEN_SOURCE
    (root / "empty.mp4").touch()
    with pytest.raises(SourceError, match="the file is empty"):
        parse_source(str(root / "empty.mp4"), file_roots=roots)


def test_a_file_may_have_any_name(tmp_path: Path) -> None:
    for name in ("a b.mp4", "ünïcode.mp4", "100%.mp4", "a:b.mp4", "quote'.mp4", "#1.mp4"):
        (tmp_path / name).write_bytes(b"x")
        assert parse_source(str(tmp_path / name)).effective_url() == f"file:{tmp_path / name}"
