"""One TOML file -> frozen, checked settings, and back again.

What is wrong is an error of ours that names the file, the section and the nearest known key. A section whose code is not there yet is
read and kept; a verb that needs it says so (`Config.refuse_later`).
"""

from __future__ import annotations

import dataclasses
import json
import os
import tomllib
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, PrivateAttr, ValidationError

from .core import settings
from .core.errors import BadFile, BadSetting, MissingExtra, nearest
from .core.files import read_file
from .core.method import Method, standardised
from .core.task import Federation
from .data.partition import Partition
from .data.sources import BUILTIN, Deal, federation
from .engine.run import ENGINES
from .methods import METHODS, name_of

NONE = "none"
"""What TOML lacks: the word for None, where a setting may be None."""


def _no_section(value: Any) -> str:
    return f"this is a section, but it holds {value!r}. Write key = value below its name."


def _table(section: Any) -> dict[str, Any]:
    if not isinstance(section, dict):
        raise BadSetting(_no_section(section))
    return dict(section)


def _deal(section: Any) -> Deal:
    return Deal.of(_table(section))


def _method(section: Any) -> Method:
    """A method with its settings; the word "none" stands for None."""
    given = _table(section)
    name = given.pop("name", None)
    if name is None:
        raise BadSetting(_nameless(given))
    if not isinstance(name, str):
        raise BadSetting(
            f'name = {name!r}, but a method is named by a word, such as name = "apfl". {nearest("", METHODS)}'
        )
    cls = METHODS[name]
    method: Method = settings.build(cls, {key: _value(cls, key, value) for key, value in given.items()})
    return method


def _nameless(given: Mapping[str, Any]) -> str:
    """Why a [method] without a name is none: its name is misspelt, or left out."""
    known = {"name", *(key for name in METHODS for key in _keys(name))}
    odd = next((key for key in given if key not in known), None)
    if odd is not None:
        return f"there is no key '{odd}'. {nearest(odd, known)}"
    return f"'name' is missing. Add a method's name, such as name = \"apfl\". {nearest('', METHODS)}"


def _keys(name: str) -> set[str]:
    """The settings of a method of the table; none where it cannot be loaded here."""
    try:
        return {field.name for field in dataclasses.fields(METHODS[name]) if field.init}
    except MissingExtra:
        return set()


def _value(cls: type[Method], key: str, value: Any) -> Any:
    checker = settings.allowed(cls).get(key)
    return None if value == NONE and checker is not None and checker.accepts(None) else value


def _engine(value: Any) -> str:
    if value not in ENGINES:
        raise BadSetting(f"engine = {value!r}, but this version has {' and '.join(ENGINES)}. {nearest(value, ENGINES)}")
    return str(value)


class Section(BaseModel):
    """Settings that are checked when they enter and do not change."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, arbitrary_types_allowed=True)


class Data(Section):
    """[data]: where rows come from."""

    source: str = Field(min_length=1)  # a built-in name or an .npz file
    standardise: bool = True  # columns of mean 0 and deviation 1, by one more round
    task: Literal["classes", "multilabel", "real"] | None = None  # None: the built-in data's own, else classes


class RunSettings(Section):
    """[run]: where a run is kept, and how it is carried."""

    out: str = Field("runs/first", min_length=1)
    seed: int = Field(0, ge=0)
    engine: Annotated[str, PlainValidator(_engine)] = "inprocess"
    threads: int | None = Field(None, ge=1)  # of the linear algebra; None: as the machine has it
    keep_messages: bool = False  # so that a client can be forgotten later without its rows


class Config(Section):
    """Everything that one file says. A section that a verb does not need may be missing."""

    data: Data | None = None
    partition: Annotated[Deal | None, PlainValidator(_deal)] = None
    method: Annotated[Method | None, PlainValidator(_method)] = None
    run: RunSettings = RunSettings()
    features: dict[str, Any] | None = None
    compare: dict[str, Any] | None = None
    tune: dict[str, Any] | None = None
    _file: str = PrivateAttr("the configuration")

    def refuse_later(self, verb: str, *sections: str) -> None:
        """Says that a section which the verb would need has no code yet."""
        for name in sections:
            if getattr(self, name) is not None:
                raise BadSetting(
                    f"{self._file}, [{name}]: this section comes in a later version, and `{verb}` needs what it says. Leave it out."
                )

    def federation(self) -> tuple[Federation, Partition]:
        """The rows with their clients, and who owns which."""
        if self.data is None:
            raise self._missing("data", 'source = "digits"')
        self.refuse_later("data", "features")
        return federation(self.data.source, self.partition, task=self.data.task)

    def learner(self) -> Method:
        """The method, on standardised columns unless [data] says otherwise."""
        if self.method is None:
            raise self._missing("method", 'name = "apfl"')
        return standardised(self.method) if self.data is None or self.data.standardise else self.method

    def _missing(self, section: str, example: str) -> BadSetting:
        return BadSetting(
            f"{self._file} has no section [{section}], which is needed here. Add [{section}] with {example}."
        )

    def to_toml(self, *only: str) -> str:
        """The same as a file, every setting with its value; paths of files are absolute, so that it holds anywhere on this machine.

        only: the sections that are wanted; left out, all of them.
        """
        method = None if self.method is None else {"name": name_of(self.method), **self.method.settings}
        sections = {
            "data": None
            if self.data is None
            else {**self.data.model_dump(), "source": _found_anywhere(self.data.source)},
            "partition": None if self.partition is None else self.partition.section,
            "method": method and {key: NONE if value is None else value for key, value in method.items()},
            "run": self.run.model_dump(),
            **{name: getattr(self, name) for name in ("features", "compare", "tune")},
        }
        wanted = only or tuple(sections)
        return "\n".join(_written(n, section) for n, section in sections.items() if section is not None and n in wanted)


def _found_anywhere(source: str) -> str:
    return source if source in BUILTIN else str(Path(source).absolute())


# ---- a file -> Config


def load(path: str | os.PathLike[str], overrides: Iterable[str] = ()) -> Config:
    """The settings in a file, with some of them put in their place: `method.ridge=0.1`.

    Where another method is put in the place of the file's, the settings that it does not have are left aside, with a warning.
    """
    parsed, overrides = _parsed(path), tuple(overrides)
    if isinstance(parsed.get("method"), dict):
        parsed["method"] = _for_another_method(parsed["method"], overrides, str(path))
    table, changed = _overridden(parsed, overrides)
    try:
        config = Config.model_validate(table)
    except ValidationError as error:
        raise _ours(error, str(path), changed) from error
    config._file = str(path)
    return config


def _for_another_method(section: dict[str, Any], overrides: Iterable[str], file: str) -> dict[str, Any]:
    """The file's [method] as far as the method named on the command line has its settings; those set beside that name stay errors."""
    given = [text.partition("=") for text in overrides]
    name = next((_value_of(v.strip()) for path, _, v in reversed(given) if path.strip() == "method.name"), None)
    old = section.get("name")
    if not (isinstance(name, str) and isinstance(old, str) and name in METHODS and old in METHODS):
        return section
    kept = {key: value for key, value in section.items() if key == "name" or key in _keys(name)}
    aside = [key for key in section if key not in kept and key in _keys(old)]
    if aside:
        warnings.warn(
            f"{file}, [method]: {name} has no {', '.join(map(repr, aside))}, which {old} has. Left aside.",
            stacklevel=3,
        )
    return {key: value for key, value in section.items() if key not in aside}


def _parsed(path: str | os.PathLike[str]) -> dict[str, Any]:
    try:
        return tomllib.loads(read_file(path).decode())
    except tomllib.TOMLDecodeError as error:
        raise BadFile(f"{path} is no valid TOML: {error}. Mend that line.") from error
    except UnicodeDecodeError as error:
        raise BadFile(f"{path} is no text in UTF-8, so it is no TOML. Check the path.") from error


def _overridden(table: dict[str, Any], overrides: Iterable[str]) -> tuple[dict[str, Any], set[str]]:
    """The table with values set by dotted path, and the sections that were touched."""
    changed = set()
    for text in overrides:
        path, equals, value = text.partition("=")
        *sections, key = (part.strip() for part in path.split("."))
        if not equals or not sections or not all((*sections, key)):
            raise BadSetting(f"'{text}' sets nothing. Write section.key=value, such as method.ridge=0.1.")
        inner = table
        for name in sections:
            inner = inner.setdefault(name, {})
            if not isinstance(inner, dict):
                raise BadSetting(f"'{text}': '{name}' is a value, not a section, so nothing can be set in it.")
        inner[key] = _value_of(value.strip())
        changed.add(sections[0])
    return table, changed


def _value_of(text: str) -> Any:
    """A value as TOML has it; a bare word is text."""
    try:
        found = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return found["value"] if len(found) == 1 else text


# ---- pydantic's words -> ours


_WORDS = {
    "bool_type": "true or false",
    "int_type": "a whole number",
    "string_type": "text in quotes",
    "string_too_short": "not empty",
}


def _ours(error: ValidationError, file: str, changed: set[str]) -> BadSetting:
    """The first thing that is wrong, with its place and what would do."""
    first = next(
        (e for e in error.errors() if e["type"] == "extra_forbidden"), error.errors()[0]
    )  # before what is missing
    section, *keys = (str(part) for part in first["loc"])
    place = f"{file} and the command line" if section in changed else file
    if keys or section in Config.model_fields:
        return BadSetting(f"{place}, [{section}]: {_sentence(first, section, keys)}")
    if isinstance(first["input"], dict):
        return BadSetting(f"{place}: there is no section [{section}]. {nearest(section, Config.model_fields)}")
    return BadSetting(f"{place}: '{section}' stands outside of all sections. Put it below one, such as [run].")


def _sentence(first: Any, section: str, keys: list[str]) -> str:
    key, kind = ".".join(keys), first["type"]
    if kind == "value_error":
        return str(first["ctx"]["error"])
    if kind == "extra_forbidden":
        known: dict[str, type[Section]] = {"data": Data, "run": RunSettings}
        return f"there is no key '{key}'. {nearest(key, known[section].model_fields)}"
    if kind == "missing":
        return f"'{key}' is missing. Add {key} = ..."
    if not keys:
        return _no_section(first["input"])
    needed = _WORDS.get(kind, first["msg"].removeprefix("Input should be "))
    return f"{key} = {first['input']!r}, but it should be {needed}."


# ---- Config -> a file


def remark(text: str) -> str:
    """A line that says something to whoever reads the file, and nothing to who parses it."""
    return "".join(f"# {line}\n" for line in _toml(text)[1:-1].replace('\\"', '"').splitlines())


def _written(name: str, section: Mapping[str, Any]) -> str:
    lines = (f"{_key(key)} = {_toml(value)}\n" for key, value in section.items() if value is not None)
    return f"[{name}]\n{''.join(lines)}"


def _toml(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str():
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case list() | tuple():
            return f"[{', '.join(map(_toml, value))}]"
        case Mapping():
            return f"{{ {', '.join(f'{_key(key)} = {_toml(v)}' for key, v in value.items())} }}"
        case _:
            return str(value)


def _key(key: str) -> str:
    return key if key.replace("-", "").replace("_", "").isalnum() and key.isascii() else _toml(key)


# ---- threads


@contextmanager
def threads(most: int | None) -> Iterator[None]:
    """The linear algebra uses at most so many threads; None leaves it as it is. A run records what it had."""
    if most is None:
        yield
        return
    from threadpoolctl import threadpool_limits

    with threadpool_limits(most, user_api="blas"):
        yield
