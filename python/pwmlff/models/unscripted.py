"""TorchScript run from Python, operator by operator.

What records operators as they are called, as torch.fx and torch.export do, sees a scripted module
as sizes that are plain integers. Here each operator of its forward is called from Python instead,
with the sizes that tensors have there, be they symbols.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

#: By the numbers that TorchScript has for them (c10::ScalarType).
DTYPES = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16,
          torch.float32, torch.float64, torch.complex32, torch.complex64, torch.complex128,
          torch.bool)  # fmt: skip
MEMORY_FORMATS = (torch.contiguous_format, torch.preserve_format)  # c10::MemoryFormat


class CannotRun(Exception):
    """The module does something that is not known here; the text goes on after its name."""


class Unscripted:
    """The forward of a scripted module.

    Args:
        module: all that it calls is inlined.
    """

    def __init__(self, module: torch.jit.ScriptModule) -> None:
        self._module: Any = module
        self._graph = self._module.inlined_graph

    def __call__(self, *inputs: Any) -> Any:
        """Evaluate.

        Raises:
            CannotRun: it has an operator that is not known.
        """
        return _Run().block(self._graph, (self._module, *inputs))[0]


class _Run:
    """One evaluation: values by their names in the graph."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def block(self, block: Any, inputs: Sequence[Any]) -> list[Any]:
        """Results of a graph or of a block in it, whose nodes see all values around it."""
        self._keep(block.inputs(), inputs)
        for node in block.nodes():
            arguments = [self.values[value.debugName()] for value in node.inputs()]
            self._keep(node.outputs(), self._node(node, arguments))
        return [self.values[value.debugName()] for value in block.outputs()]

    def _keep(self, names: Any, values: Sequence[Any]) -> None:
        for value, kept in zip(names, values, strict=False):  # what gives nothing has no name
            self.values[value.debugName()] = kept

    def _node(self, node: Any, arguments: list[Any]) -> Sequence[Any]:
        """Results of a node."""
        kind = node.kind()
        if kind == "prim::If":
            return self.block(list(node.blocks())[0 if arguments[0] else 1], [])
        if kind == "prim::Loop":
            return self._loop(node, *arguments)
        if kind in ("prim::ListUnpack", "prim::TupleUnpack"):
            return list(arguments[0])
        if kind == "prim::Constant":
            result = node.output().toIValue()
        elif kind == "prim::GetAttr":
            result = getattr(arguments[0], node.s("name"))
        elif kind in PLAIN and (kind.startswith("prim::") or not _takes_tensors(node.schema())):
            result = PLAIN[kind](*arguments)
        elif kind.startswith("aten::") and _takes_tensors(node.schema()):
            result = _call(node.schema(), arguments)
        else:
            raise CannotRun(f"has an operator that cannot be compiled: {node.schema()} of {kind}")
        return result if len(list(node.outputs())) > 1 else [result]

    def _loop(self, node: Any, most: int, goes_on: bool, *carried: Any) -> Sequence[Any]:
        (body,), step = node.blocks(), 0
        while goes_on and step < most:
            goes_on, *kept = self.block(body, [step, *carried])
            carried, step = tuple(kept), step + 1
        return carried


def _takes_tensors(schema: str) -> bool:
    """Whether an operator is one of tensors, not of lists, numbers or what a tensor is made of."""
    name = schema.partition("(")[0].partition(".")[0]
    return "Tensor" in schema and name not in OF_TENSORS


def _call(schema: str, arguments: Sequence[Any]) -> Any:
    """What an operator of tensors gives."""
    name, _, overload = schema.partition("(")[0].removeprefix("aten::").partition(".")
    try:
        function = getattr(getattr(torch.ops.aten, name), overload or "default")
    except AttributeError as error:
        raise CannotRun(f"has an operator that cannot be compiled: {schema}") from error
    positional, named = [], {}
    declarations = function._schema.arguments  # noqa: SLF001  torch has no other way to it
    for given, declared in zip(arguments, declarations, strict=True):
        value, kind = given, str(declared.real_type)
        if type(given) is int and "ScalarType" in kind:
            value = DTYPES[given]
        elif type(given) is int and "MemoryFormat" in kind:
            value = MEMORY_FORMATS[given]
        elif type(given) is int and "Layout" in kind:
            value = torch.strided
        if declared.kwarg_only:
            named[declared.name] = value
        else:
            positional.append(value)
    return function(*positional, **named)


def _tensor(
    data: Any, dtype: int | None = None, device: Any = None, requires_grad: bool = False
) -> torch.Tensor:
    """torch.tensor, of lists with symbols too."""
    kind = None if dtype is None else DTYPES[dtype]
    if isinstance(data, list) and any(isinstance(value, torch.SymInt) for value in data):
        parts = [torch.full((), value, dtype=kind or torch.int64, device=device) for value in data]
        return torch.stack(parts)
    return torch.tensor(data, dtype=kind, device=device, requires_grad=requires_grad)


def _fail(text: str, *_: Any) -> None:
    raise RuntimeError(text)


#: Names in PLAIN that are meant for tensors, too.
OF_TENSORS = ("aten::Bool", "aten::Float", "aten::Int", "aten::dim", "aten::len", "aten::numel",
              "aten::size", "aten::tensor")  # fmt: skip

#: Operators of lists, dictionaries, tuples and numbers, and what tensors say of themselves.
PLAIN: dict[str, Callable[..., Any]] = {
    "aten::Bool": bool,
    "aten::Float": float,
    "aten::Int": int,
    "aten::__derive_index": lambda index, start, step: start + index * step,
    "aten::__is__": operator.is_,
    "aten::__isnot__": operator.is_not,
    "aten::__range_length": lambda start, stop, step: len(range(start, stop, step)),
    "aten::_set_item": operator.setitem,
    "aten::append": list.append,
    "aten::dim": torch.Tensor.dim,
    "aten::div": operator.truediv,
    "aten::format": lambda text, *values: text.format(*values),
    "aten::items": lambda table: list(table.items()),
    "aten::keys": list,
    "aten::len": len,
    "aten::list": list,
    "aten::numel": torch.Tensor.numel,
    "aten::remainder": operator.mod,
    "aten::size": lambda tensor, axis=None: (
        tensor.shape[axis] if axis is not None else list(tensor.shape)
    ),
    "aten::slice": lambda values, start=None, stop=None, step=1: values[start:stop:step],
    "aten::tensor": _tensor,
    "aten::values": lambda table: list(table.values()),
    "aten::warn": lambda *_: None,
    "prim::DictConstruct": lambda *pairs: dict(zip(pairs[::2], pairs[1::2], strict=True)),
    "prim::ListConstruct": lambda *values: list(values),
    "prim::RaiseException": _fail,
    "prim::TupleConstruct": lambda *values: values,
    "prim::TupleIndex": operator.getitem,
    "prim::Uninitialized": lambda: None,
    "prim::is_cuda": lambda tensor: tensor.is_cuda,
    "prim::device": lambda tensor: tensor.device,
    "prim::dtype": lambda tensor: DTYPES.index(tensor.dtype),
    "prim::max": max,
    "prim::min": min,
    "prim::unchecked_cast": lambda value: value,
    **{f"aten::{name}": getattr(operator, name)
       for name in ("__and__", "__contains__", "__getitem__", "__not__", "__or__", "add", "eq",
                    "floordiv", "ge", "gt", "le", "lt", "mul", "ne", "neg", "sub")},
    **{f"aten::{name}": getattr(math, name)
       for name in ("acos", "asin", "atan", "ceil", "cos", "exp", "floor", "log", "pow", "sin",
                    "sqrt", "tan", "tanh", "trunc")},
    **{f"aten::{function.__name__}": function for function in (abs, min, max, round, sorted, sum)},
}  # fmt: skip
