"""Every message survives the wire, and only orders are orders."""

from __future__ import annotations

import types
import typing

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framepool.engine.runtime import messages as m

KINDS = [
    kind
    for kind in vars(m).values()
    if isinstance(kind, type) and issubclass(kind, m.Message) and kind is not m.Message
]


def values_of(hint: object) -> st.SearchStrategy[typing.Any]:
    """Any value of a field's type."""
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple and len(inside) == 2 and inside[1] is Ellipsis:
        return st.lists(values_of(inside[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values_of, inside))
    if origin is dict:
        return st.dictionaries(st.text(), st.text(), max_size=3)
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*map(values_of, inside))
    if isinstance(hint, type) and issubclass(hint, m.Message):
        return messages_of(hint)
    plain: dict[object, st.SearchStrategy[typing.Any]] = {
        int: st.integers(-(2**63), 2**63 - 1),
        float: st.floats(allow_nan=False),
        str: st.text(),
        bytes: st.binary(max_size=50),
        bool: st.booleans(),
        type(None): st.none(),
    }
    return plain[hint]


def messages_of(kind: type[m.Message]) -> st.SearchStrategy[m.Message]:
    hints = typing.get_type_hints(kind)
    return st.builds(kind, **{name: values_of(hints[name]) for name in kind.__struct_fields__})


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(max_examples=10)
@given(data=st.data())
def test_messages_survive_the_wire(kind: type[m.Message], data: st.DataObject) -> None:
    message = data.draw(messages_of(kind))
    wire = m.encoder.encode(message)
    orders, reports = typing.get_args(m.Order), typing.get_args(m.Report)
    if kind in orders:
        assert m.decode_order.decode(wire) == message
    if kind in reports:
        assert m.decode_report.decode(wire) == message
    if kind not in orders:
        with pytest.raises(msgspec.ValidationError):
            m.decode_order.decode(wire)


def test_nobody_is_forgotten() -> None:
    parts = {m.ArenaRef, m.FrameInput, m.RowInput, m.HopOrder, m.FrameResult}
    assert set(KINDS) == parts | set(typing.get_args(m.Order)) | set(typing.get_args(m.Report))


def test_f6_an_order_with_a_password_does_not_show_it() -> None:
    fields = {
        name: {int: 0, float: 0.0, bool: False, str: "", m.ArenaRef: m.ArenaRef("a", 1, 1)}[hint]
        for name, hint in typing.get_type_hints(m.AddFeed).items()
        if name in m.AddFeed.__struct_fields__
    }
    order = m.AddFeed(**{**fields, "password": "s3cret", "stream": "gate"})
    assert "s3cret" not in repr(order)
    assert "s3cret" not in f"{order}"
    assert "gate" in repr(order)
    assert m.decode_order.decode(m.encoder.encode(order)).password == "s3cret"  # type: ignore[union-attr]
