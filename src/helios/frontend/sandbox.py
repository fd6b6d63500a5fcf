"""The Jinja environment that chat templates run in: Jinja's immutable sandbox, bounded.

Templates are third-party data. The sandbox keeps them away from the process; here loops, operators,
filters and methods also pay for their work (`budget`), and only those that templates use exist
(`bounded`, `filters`). Text that a template writes itself is known as such (`origins`). Statements
that the sandbox doesn't intercept, and literals, are rewritten in the parsed template. `template`
is the caller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import jinja2.sandbox
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.visitor import NodeTransformer

from helios.frontend import bounded, budget, filters, origin_formats
from helios.frontend.origins import Origin, by


class _GenerationTag(Extension):
    """`{% generation %}…{% endgeneration %}` marks assistant text for training; here its body
    is rendered like any other text."""

    tags: Final = {"generation"}  # type: ignore[misc]  # Jinja declares a plain class variable

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Replaces the block by its body."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Formatter(jinja2.sandbox.SandboxedFormatter):
    """`str.format` with bounded widths."""

    def format_field(self, value: Any, format_spec: str) -> str:
        bounded.check_specification(format_spec, value)
        return str(super().format_field(value, format_spec))

    def convert_field(self, value: Any, conversion: Any) -> Any:
        bounded.printed(value)
        return super().convert_field(value, conversion)


class BoundedEnvironment(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """The sandbox with growth and loops bounded; used inside `budget.rendering` only."""

    intercepted_binops: Final = frozenset({"+", "*", "**", "%"})  # type: ignore[misc]
    concat = staticmethod(bounded.concatenate)

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[_GenerationTag, loopcontrols],
            finalize=bounded.shown,
        )
        self.filters = dict(filters.FILTERS_ALLOWED)
        self.tests = dict(filters.TESTS_ALLOWED)
        self._literals: dict[str, str] = {}
        self.globals = {name: self.globals[name] for name in ("range", "dict", "namespace")}

    def call_binop(
        self, context: jinja2.runtime.Context, operator: str, left: Any, right: Any
    ) -> Any:
        """Runs an intercepted operator after it was paid for."""
        bounded.guard_operator(operator, left, right)
        text = bounded.text_operator(operator, left, right)
        return super().call_binop(context, operator, left, right) if text is None else text

    def call(  # Jinja mangles the names of its own first parameters
        self, context: jinja2.runtime.Context, operation: Any, /, *values: Any, **named: Any
    ) -> Any:
        """Calls what a template calls. A tuple could be a dictionary's key, and hashing one goes
        through all that it holds."""
        for value in values:
            if isinstance(value, tuple):
                bounded.printed(value)
        return super().call(context, operation, *values, **named)

    def getattr(self, obj: Any, attribute: str) -> Any:
        """An attribute; of strings only the methods that `bounded` has."""
        if isinstance(obj, str):
            return self._string_method(obj, attribute)
        return super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """An item, or else an attribute."""
        if isinstance(obj, str) and isinstance(argument, str):
            return self._string_method(obj, argument)
        return super().getitem(obj, bounded.printed(argument))

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Whether a template may see an attribute."""
        return super().is_safe_attribute(obj, attr, value) and bounded.is_allowed_method(
            obj, attr, value
        )

    def _string_method(self, text: str, name: str) -> Any:
        if name == "format":
            return lambda *values, **named: self._format(text, values, named)
        if name == "format_map":
            return lambda mapping: self._format(text, (), mapping)
        method = bounded.string_method(text, name)
        if method is not None:
            return method
        if hasattr(text, name):
            return self.unsafe_undefined(text, name)
        return self.undefined(obj=text, name=name)

    def _format(self, text: str, values: Sequence[Any], named: Mapping[str, Any]) -> str:
        budget.spend_reading(text)
        return origin_formats.formatted(text, _Formatter(self), values, named)

    def parse_as_written(self, source: str) -> nodes.Template:
        """The template with its own literals in their places."""
        return super()._parse(source, None, None)

    def bounded(self, tree: nodes.Template) -> nodes.Template:
        """A template as written, which pays for its work and whose literals know their origin. It
        takes the tree's place."""
        paying: nodes.Template = _Paying(self).visit(tree)
        written: nodes.Template = _Literals(self).visit(paying)
        return written

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        return self.bounded(super()._parse(source, name, filename))

    def literal(self, text: str) -> nodes.Expr:
        """The template's own text as a value that knows its origin."""
        name = self._literals.setdefault(text, f"literal_{len(self._literals)}")
        setattr(self, name, by(Origin.TEMPLATE, text))
        return nodes.EnvironmentAttribute(name)


class _Paying(NodeTransformer):
    """Lets what the sandbox doesn't intercept pay: loop passes and macro calls, `~`, slices,
    comparisons, keys of dictionaries."""

    def __init__(self, environment: BoundedEnvironment) -> None:
        self._environment = environment

    def _call(self, function: Any, *values: nodes.Expr) -> nodes.Call:
        name = nodes.ImportedName(f"{function.__module__}.{function.__name__}")
        call = nodes.Call(name, list(values), [], None, None)
        return call.set_environment(self._environment)  # type: ignore[return-value]

    def _body(self, node: Any) -> Any:
        node = self.generic_visit(node)
        statement = nodes.ExprStmt(self._call(budget.spend_iteration))
        node.body.insert(0, statement.set_environment(self._environment))
        return node

    visit_For = visit_Macro = visit_CallBlock = _body  # the visitor's names

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        """`a ~ b`."""
        self.generic_visit(node)
        return self._call(bounded.concatenated, *node.nodes)

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        """`a[1:]`; other items are `getitem`'s."""
        self.generic_visit(node)
        return self._call(bounded.sliced, node) if isinstance(node.arg, nodes.Slice) else node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        """`a == b`; with a constant the comparison is short."""
        self.generic_visit(node)
        operands = [node.expr, *(operand.expr for operand in node.ops)]
        if not any(isinstance(operand, nodes.Const) for operand in operands):
            node.expr = self._call(bounded.printed, node.expr)
            for operand in node.ops:
                operand.expr = self._call(bounded.printed, operand.expr)
        return node

    def visit_Pair(self, node: nodes.Pair) -> nodes.Node:
        """`{key: value}`."""
        self.generic_visit(node)
        if not isinstance(node.key, nodes.Const):
            node.key = self._call(bounded.printed, node.key)
        return node


class _Literals(NodeTransformer):
    """Text that the template writes, as values with that origin."""

    def __init__(self, environment: BoundedEnvironment) -> None:
        self._environment = environment

    def visit_TemplateData(self, node: nodes.TemplateData) -> nodes.Node:
        """Text between tags."""
        return self._environment.literal(node.data)

    def visit_Const(self, node: nodes.Const) -> nodes.Node:
        """A constant in an expression."""
        return self._environment.literal(node.value) if isinstance(node.value, str) else node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        """`a['name']` prints no name."""
        if isinstance(node.arg, nodes.Const):
            node.node = self.visit(node.node)
            return node
        return self.generic_visit(node)
