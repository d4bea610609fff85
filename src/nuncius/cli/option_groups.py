"""Options that several commands share, as one parameter: a class whose fields are the options."""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

import typer


class OptionGroup:
    """Base of the classes. A subclass is a dataclass, and its fields have types and defaults as parameters of
    a command have them."""


class Commands(typer.Typer):
    """Commands whose parameters may be groups of options."""

    def command(self, *names: Any, **settings: Any) -> Callable[..., Any]:
        register = super().command(*names, **settings)
        return lambda function: register(expanded(function))


def expanded(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the command with the fields of each group in the place of the group."""
    parameters: list[inspect.Parameter] = []
    groups: dict[str, Any] = {}
    hints = get_type_hints(function, include_extras=True)
    for parameter in inspect.signature(function).parameters.values():
        kind = hints[parameter.name]
        if isinstance(kind, type) and issubclass(kind, OptionGroup):
            groups[parameter.name] = kind
            types = get_type_hints(kind, include_extras=True)
            parameters += [
                parameter.replace(name=field.name, default=field.default, annotation=types[field.name])
                for field in dataclasses.fields(kind)  # type: ignore[arg-type]
            ]
        else:
            parameters.append(parameter.replace(annotation=kind))

    @functools.wraps(function)
    def command(**given: Any) -> Any:
        for name, kind in groups.items():
            given[name] = kind(**{field.name: given.pop(field.name) for field in dataclasses.fields(kind)})
        return function(**given)

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command
