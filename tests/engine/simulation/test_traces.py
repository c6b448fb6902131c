"""Trace files: plain times and Azure's two layouts, and what is wrong with others is said with the line."""

from __future__ import annotations

import pytest

from framepool.engine.errors import ConfigError
from framepool.engine.simulation.traces import read_times


@pytest.mark.parametrize(
    ("text", "times"),
    [
        ("1.5\n0.5\n\n2", [0.5, 1.5, 2.0]),
        ("seconds,what\n3,a\n1e1,b", [3.0, 10.0]),
        ("app,func,end_timestamp,duration\nx,y,5.0,2.0\nx,z,4.5,0.25\n", [3.0, 4.25]),
        ("HashOwner,HashApp,HashFunction,Trigger,1,2,3\no,a,f,http,1,0,2\no,a,g,timer,1,0,0\n", [15, 45, 135, 165]),
    ],
)
def test_each_layout_is_read(text: str, times: list[float]) -> None:
    assert read_times(text.splitlines(), "trace.csv") == pytest.approx(times)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no times"),
        ("seconds\n", "holds no times"),
        ("1\ntwo\n", "line 2: 'two' is no number"),
        ("1\nnan\n", "line 2: 'nan' is no number"),
        ("app,func,end_timestamp,duration\nx,y,5.0\n", "line 2: '' is no number"),
        ("HashOwner,HashApp,HashFunction,Trigger,1\no,a,f,http,many\n", "line 2: 'many' is no number"),
    ],
)
def test_what_is_wrong_is_said_with_file_and_line(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        read_times(text.splitlines(), "trace.csv")
    assert "trace.csv" in str(caught.value)
