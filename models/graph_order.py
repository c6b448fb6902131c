"""Orders in which a graph's nodes may be laid out before it is cut, such that few tensors are live at a time.

Idea: walk back from the outputs and compute the deepest operand of each node first, shallow side branches only when
they are due (Sethi and Ullman's numbering, for graphs). A feature pyramid then yields its levels c3, c4, c5 one after
another, before any of its lateral convolutions. The file's own order is the other choice; `cuts` takes the better.

Cost: linear in nodes and edges.
"""

from __future__ import annotations

from collections.abc import Sequence

from framepool.models.graph import Graph


def last_reads(graph: Graph, order: Sequence[int]) -> dict[str, int]:
    """For each tensor that is no constant, the last position in `order` that reads it; ``len(order)`` for outputs."""
    last = {name: position for position, index in enumerate(order) for name in graph.dynamic_reads(index)}
    last.update({name: len(order) for name in graph.outputs if name not in graph.constants})
    return last


def deepest_first(graph: Graph) -> tuple[int, ...]:
    """A topological order of `graph.live_nodes` that computes deep operands before shallow ones."""
    live = set(graph.live_nodes)
    operands: dict[int, list[int]] = {}
    depth: dict[int, int] = {}
    for index in graph.live_nodes:
        found = dict.fromkeys(graph.producer[name] for name in graph.dynamic_reads(index) if name in graph.producer)
        sources = [source for source in found if source in live]
        depth[index] = 1 + max((depth[source] for source in sources), default=0)
        operands[index] = sorted(sources, key=lambda source: (-depth[source], source))
    roots = dict.fromkeys(graph.producer[name] for name in graph.outputs if name in graph.producer)
    order: dict[int, None] = {}
    for root in sorted((root for root in roots if root in live), key=lambda root: (-depth[root], root)):
        path = [(root, 0)]
        while path:
            index, next_operand = path.pop()
            if index in order:
                continue
            if next_operand < len(operands[index]):
                path.append((index, next_operand + 1))
                path.append((operands[index][next_operand], 0))
            else:
                order[index] = None
    return tuple(order)
