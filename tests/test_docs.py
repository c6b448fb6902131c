"""Examples in the documentation run as they stand; links and settings are those there are."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_control import FakeControl, frame

from framepool.engine.api.options import ApiOptions
from framepool.engine.api.server import ApiServer
from framepool.engine.cli.app import app
from framepool.engine.errors import CapacityError

ROOT = Path(__file__).parents[1]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
API_PAGE = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", API_PAGE, re.DOTALL)


@pytest.fixture
def control() -> FakeControl:
    return FakeControl()


@pytest.fixture
def address(control: FakeControl) -> Iterator[str]:
    server = ApiServer(control, ApiOptions(port=0))
    yield f"127.0.0.1:{server.start()}"
    server.stop(0.1)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_examples_run(number: int, address: str, control: FakeControl, capsys: pytest.CaptureFixture[str]) -> None:
    control.publish(frame(1))
    if "CapacityError" in EXAMPLES[number]:
        control.raises["register_stream"] = CapacityError("1 ms is too short", best_slo_ms=10.0)
    code = EXAMPLES[number].replace("127.0.0.1:7707", address)
    exec(compile(code, f"docs/api.md example {number}", "exec"), {"__name__": "example"})
    assert capsys.readouterr().out


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 4


def test_commands_of_the_documentation_exist() -> None:
    """Every `framepool VERB [SUBVERB]` in README and docs is a command."""
    groups = {group.name: {command.name for command in group.typer_instance.registered_commands}
              for group in app.registered_groups if group.typer_instance}  # fmt: skip
    single = {command.name for command in app.registered_commands}
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    named = set(re.findall(r"(?:`|^ +)framepool ([a-z]+)(?: ([a-z]+)\b)?", text, re.MULTILINE))
    assert len(named) >= 8
    for verb, word in named:
        assert verb in groups or verb in single, verb
        if verb in groups and word:
            assert word in groups[verb], f"{verb} {word}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_the_table_of_verbs_names_every_method() -> None:
    methods = set(re.findall(r"^  rpc (\w+)", "".join(p.read_text() for p in (ROOT / "proto").glob("*.proto")), re.M))
    missing = {method for method in methods if f"`{method}`" not in API_PAGE}
    assert missing == set()


def test_the_sample_configuration_names_every_setting() -> None:
    """docs/framepool.toml lists each setting with its default, commented out where it has none."""
    from framepool.engine.config import EngineConfig, make_config

    text = (ROOT / "docs" / "framepool.toml").read_text(encoding="utf-8")
    config = make_config(tomllib.loads(text))
    assert config == make_config({})
    for name, section in EngineConfig.model_fields.items():
        if name == "devices":
            continue
        table = text.split(f"[{name}]\n", 1)[1].split("\n[", 1)[0]
        for setting in section.annotation.model_fields:  # type: ignore[union-attr]
            assert re.search(rf"^(# )?{setting} = ", table, re.MULTILINE), f"{name}.{setting}"
