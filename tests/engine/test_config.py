"""Configuration: file, environment, defaults; what is wrong is named by its key."""

from __future__ import annotations

from pathlib import Path

import pytest

from framepool.engine.config import describe, load_config, make_config
from framepool.engine.errors import ConfigError


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in [name for name in os.environ if name.startswith("FRAMEPOOL_")]:
        monkeypatch.delenv(name)


def written(folder: Path, text: str) -> Path:
    path = folder / "framepool.toml"
    path.write_text(text)
    return path


def test_the_file_goes_before_defaults_and_the_environment_before_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, "[api]\nport = 1\nhttp_port = 2\n[planner]\nmax_stages = 1\n")
    monkeypatch.setenv("FRAMEPOOL_API__PORT", "3")
    monkeypatch.setenv("FRAMEPOOL_ENGINE__STATE_DIR", str(tmp_path / "s"))
    config = load_config(path).config
    assert (config.api.port, config.api.http_port, config.api.host) == (3, 2, "127.0.0.1")
    assert config.planner.max_stages == 1
    assert config.engine.state_dir == tmp_path / "s"


def test_without_a_file_there_are_defaults() -> None:
    config = load_config(None).config
    assert (config.api.port, config.scheduler.policy, config.store.max_age_days) == (7707, "ppipe", 7.0)
    assert config.devices == ()


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("[api]\nport = 70000\n", "api.port"),
        ("[api]\nport = 'x'\n", "api.port"),
        ("[api]\nprot = 1\n", "api.prot"),
        ("[apo]\nport = 1\n", "apo"),
        ("[planner]\nslo_margin = 1.0\n", "planner.slo_margin"),
        ("[planner]\ntime_limit_s = 0\n", "planner.time_limit_s"),
        ("[engine]\nlog_level = 'loud'\n", "engine.log_level"),
        ("[profiles]\nbatch_sizes = []\n", "profiles.batch_sizes"),
        ("[[devices]]\nbackend = 'openvino'\n", "devices.0.class"),
        ("[[devices]]\nclass = 'a'\nbackend = 'tpu'\n", "devices.0.backend"),
        ("[[devices]]\nclass = 'a'\nbackend = 'openvino'\ncount = 0\n", "devices.0.count"),
        ("[[devices]]\nclass = 'a'\nbackend = 'openvino'\nprecision = 'fp7'\n", "devices.0.precision"),
    ],
)
def test_a_wrong_value_is_named_by_its_key_and_file(tmp_path: Path, text: str, key: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as raised:
        load_config(path)
    assert raised.value.field.startswith(key)
    assert key in str(raised.value)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize("content", [b"[api\n", b"\xff\xfe", b"api = \n"])
def test_a_file_that_is_no_toml_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "framepool.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"framepool\.toml is no valid TOML"):
        load_config(path)
    with pytest.raises(ConfigError, match=r"nope\.toml can't be read: No such file"):
        load_config(tmp_path / "nope.toml")


def test_a_wrong_variable_of_the_environment_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAMEPOOL_API__PORT", "many")
    with pytest.raises(ConfigError, match=r"api\.port") as raised:
        load_config(None)
    assert raised.value.field == "api.port"


def test_f7_what_is_shown_holds_no_secret(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "[api]\nauth_token = 't0ken-s3cret'\n[store]\nurl = 'postgresql+psycopg://u:s3cret@host/db'\n",
    )
    loaded = load_config(path)
    assert loaded.config.api.auth_token.get_secret_value() == "t0ken-s3cret"
    for shown in (describe(loaded), repr(loaded), str(loaded.config)):
        assert "s3cret" not in shown
    assert f"# {path}" in describe(loaded)


def test_a_token_that_is_wrong_is_not_repeated() -> None:
    with pytest.raises(ConfigError) as raised:
        make_config({"api": {"auth_token": ["s3cret"]}})
    assert "s3cret" not in str(raised.value)
