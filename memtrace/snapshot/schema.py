"""A checker made from type hints: the TypedDicts of format.py are the one description of a capture.

Each hint becomes a function that returns the weight of a value (how many items it would have
written out in full) or raises a Fault whose place is completed on the way up, so that a value that
is right costs no string. Lists of numbers and strings, the bulk of a capture, are checked in C.
"""

from __future__ import annotations

from collections.abc import Callable
from types import NoneType, UnionType
from typing import Any, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

from memtrace.snapshot.validate import INT64, Fault, brief, integer, is_text

_LONGEST_PLACE = 160  # characters
_DEEPEST = 20  # of free-form values; what JSON-like facts need, with room
# A pickle may refer to one list many times, and lists of lists of lists explode when walked. Real
# captures share a shape or an argument list now and then.
_MOST_SHARING = 20
_ALWAYS_FINE = 1_000_000
_CHARACTERS = 64  # of text that weigh as much as an item

Check = Callable[[Any], int]


class _Misplaced(Exception):
    """A Fault under way, whose place is known from the inside out."""

    def __init__(self, make: Callable[[str], Fault]) -> None:
        super().__init__()
        self.make = make
        self.places: list[str] = []

    def inside(self, place: str) -> _Misplaced:
        self.places.append(place)
        return self


def _shorten(place: str) -> str:
    """A place in a message: of one deep within others, where it begins and where it ends."""
    return place if len(place) <= _LONGEST_PLACE else f"{place[:80]}…{place[80 - _LONGEST_PLACE :]}"


def _wrong(value: Any, expected: str) -> _Misplaced:
    return _Misplaced(lambda place: Fault.of(place, value, expected))


class Schema:
    """The checks of one file; what was checked once is not walked again."""

    def __init__(self) -> None:
        self._checks: dict[Any, Check] = {}
        self._distinct = 0
        self._texts: set[int] = set()  # by id; what is checked lives as long as this
        self._atoms = {**_ATOMS, str: self._text}

    def check(self, value: Any, hint: Any, place: str) -> None:
        """Raise a Fault unless ``value`` is what ``hint`` says."""
        try:
            weight = self._compile(hint)(value)
        except _Misplaced as error:
            raise error.make(_shorten(place + "".join(reversed(error.places)))) from None
        if weight > _ALWAYS_FINE + _MOST_SHARING * self._distinct:
            raise Fault(f"{place} repeats its parts until they are {weight} items")

    def _compile(self, hint: Any) -> Check:
        if hint not in self._checks:
            self._checks[hint] = self._make(hint)
        return self._checks[hint]

    def _make(self, hint: Any) -> Check:
        if hint in self._atoms:
            return self._atoms[hint]
        if hint is Any:
            return self._free()
        if is_typeddict(hint):
            return self._once(self._record(hint), dict, "a dict")
        origin, args = get_origin(hint), get_args(hint)
        if origin is list:
            inner = self._compile(args[0])
            bulk = {int: _numbers, str: self._text_list}
            whole = bulk.get(args[0]) or (lambda value: _each(value, inner))
            return self._once(whole, list, "a list")
        if origin is dict and args[0] is str:
            inner = self._compile(args[1])
            return self._once(lambda value: self._mapping(value, inner), dict, "a dict")
        if origin in (UnionType, Union):
            return self._union(args)
        raise NotImplementedError(hint)  # a new kind of hint in format.py

    def _once(
        self, check: Check, kind: type[list[Any]] | type[dict[str, Any]], words: str
    ) -> Check:
        """``check`` for containers of one exact type, each object once."""
        weights: dict[int, int] = {}

        def checked(value: Any) -> int:
            # not isinstance: pickles hold no subclasses, and bool is one of int
            if type(value) is not kind:
                raise _wrong(value, words)
            weight = weights.get(id(value))
            if weight is None:
                weight = weights[id(value)] = 1 + check(value)
                self._distinct += 1 + len(value)
            return weight

        return checked

    def _record(self, hint: Any) -> Check:
        keys = [(key, self._compile(of)) for key, of in get_type_hints(hint).items()]
        # Not __optional_keys__: that does not see NotRequired where annotations are strings.
        marked = get_type_hints(hint, include_extras=True)
        optional = {key for key, of in marked.items() if get_origin(of) is NotRequired}
        if not hint.__total__:
            optional.update(marked)

        def check(value: dict[str, Any]) -> int:
            weight = 0
            for key, inner in keys:
                if key in value:
                    try:
                        weight += inner(value[key])
                    except _Misplaced as error:
                        raise error.inside(f".{key}") from None
                elif key not in optional:
                    raise _Misplaced(lambda place: Fault(f"{place} is missing")).inside(f".{key}")
            return weight

        return check

    def _union(self, args: tuple[Any, ...]) -> Check:
        others = [arg for arg in args if arg is not NoneType]
        if NoneType in args and len(others) == 1:
            inner = self._compile(others[0])
            return lambda value: 1 if value is None else inner(value)
        checks = [self._compile(arg) for arg in args]

        def check(value: Any) -> int:
            for attempt in checks:
                try:
                    return attempt(value)
                except _Misplaced as error:
                    last = error
            raise last

        return check

    def _free(self) -> Check:
        """JSON-like values (and tuples) of any shape, not too deep and not within themselves."""
        weights: dict[int, tuple[int, int]] = {}

        def walk(value: Any, depth: int) -> tuple[int, int]:
            """Weight and height."""
            kind = type(value)
            if kind not in (dict, list, tuple):
                if kind in self._atoms:
                    return self._atoms[kind](value), 0
                raise _wrong(value, "a number, string, list or dict")
            known = weights.get(id(value))
            if known is None:
                if depth > _DEEPEST:
                    raise _Misplaced(lambda place: Fault(f"{place} is nested too deep"))
                weight, height = 1, 0
                for key, item in value.items() if kind is dict else enumerate(value):
                    try:
                        w, h = walk(item, depth + 1)
                        if kind is dict and type(key) is not int:
                            if not is_text(key):
                                raise _Misplaced(lambda place: Fault(f"{place} is no proper key"))
                            w += self._text(key)
                    except _Misplaced as error:
                        raise error.inside(f"[{brief(key)}]") from None
                    weight, height = weight + w, max(height, h + 1)
                known = weights[id(value)] = weight, height
                self._distinct += 1 + len(value)
            if depth + known[1] > _DEEPEST:
                raise _Misplaced(lambda place: Fault(f"{place} is nested too deep"))
            return known

        return lambda value: walk(value, 0)[0]

    def _text(self, value: Any) -> int:
        """A text weighs by its length: one string in very many places is as much as many."""
        if not is_text(value):
            raise _wrong(
                value, "a string" if type(value) is not str else "text that UTF-8 can hold"
            )
        weight = len(value) // _CHARACTERS
        if weight and id(value) not in self._texts:
            self._texts.add(id(value))
            self._distinct += weight
        return 1 + weight

    def _text_list(self, values: list[Any]) -> int:
        if (
            set(map(type, values)) <= {str}
            and all(map(str.isascii, values))
            and max(map(len, values), default=0) < _CHARACTERS
        ):
            return len(values)
        return _each(values, self._text)

    def _mapping(self, values: dict[Any, Any], check: Check) -> int:
        weight = 0
        for key, value in values.items():
            try:
                weight += self._text(key) + check(value)
            except _Misplaced as error:
                raise error.inside(f"[{brief(key)}]") from None
        return weight


def _number(value: Any) -> int:
    # Bounded to 64 bits, so that numpy takes every number and none has thousands of digits.
    if type(value) is not int or not -INT64 - 1 <= value <= INT64:
        raise _Misplaced(lambda place: _integer_fault(value, place))
    return 1


def _integer_fault(value: Any, place: str) -> Fault:
    try:
        integer(value, place, -INT64 - 1)
    except Fault as fault:
        return fault
    raise AssertionError(value)


def _exactly(kind: type, words: str) -> Check:
    def check(value: Any) -> int:
        if type(value) is not kind:
            raise _wrong(value, words)
        return 1

    return check


def _numbers(values: list[Any]) -> int:
    if set(map(type, values)) <= {int} and (
        not values or (min(values) >= -INT64 - 1 and max(values) <= INT64)
    ):
        return len(values)
    return _each(values, _number)


def _each(values: list[Any], check: Check) -> int:
    weight = 0
    k = 0
    try:
        for k, value in enumerate(values):  # noqa: B007
            weight += check(value)
    except _Misplaced as error:
        raise error.inside(f"[{k}]") from None
    return weight


_ATOMS: dict[Any, Check] = {
    int: _number,
    bool: _exactly(bool, "a bool"),
    float: _exactly(float, "a float"),
    NoneType: _exactly(NoneType, "None"),
}
