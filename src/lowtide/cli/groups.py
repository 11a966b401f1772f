"""Options that belong together are a dataclass: a command takes one as a parameter, the user gives its fields."""

from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, get_type_hints


def grouped(**defaults: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command for typer whose dataclass parameters are one option for each of their fields; `defaults` are the
    command's own."""

    def spread(command: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(command, include_extras=True)
        groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
        parameters: list[Parameter] = []
        for name, given in signature(command).parameters.items():
            if name in groups:
                parameters += _of_fields(groups[name], defaults)
            else:
                parameters.append(given.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[name]))

        @wraps(command)
        def run(**given: Any) -> None:
            made = {name: kind(**{f.name: given.pop(f.name) for f in fields(kind)}) for name, kind in groups.items()}
            command(**given, **made)

        run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return spread


def _of_fields(kind: Any, defaults: dict[str, Any]) -> list[Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    return [
        Parameter(
            field.name,
            Parameter.KEYWORD_ONLY,
            annotation=hints[field.name],
            default=defaults.get(field.name, Parameter.empty if field.default is MISSING else field.default),
        )
        for field in fields(kind)
    ]
