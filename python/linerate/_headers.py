"""Fields of requests and responses."""

from collections.abc import Mapping as _Mapping


class Headers(_Mapping):
    """Fields by name, without regard to case. `headers["x"]` is the first of its name, `get_all` has all of them.

    `items`, `keys` and `len` count each name once; `pairs` is the list of all fields, those of one name together.
    """

    __slots__ = ("_pairs",)

    def __init__(self, pairs=()):
        self._pairs = tuple((name, value) for name, value in pairs)

    @property
    def pairs(self):
        """All fields, those of one name together, as `(name, value)`."""
        return list(self._pairs)

    def get_all(self, name):
        """The values of all fields of this name, in order."""
        name = name.lower()
        return [value for own, value in self._pairs if own.lower() == name]

    def __getitem__(self, name):
        if isinstance(name, str):
            for value in self.get_all(name):
                return value
        raise KeyError(name)

    def __iter__(self):
        return iter(dict.fromkeys(name.lower() for name, _ in self._pairs))

    def __len__(self):
        return len({name.lower() for name, _ in self._pairs})

    def __eq__(self, other):
        if isinstance(other, Headers):
            return self._pairs == other._pairs
        return _Mapping.__eq__(self, other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self):
        return f"Headers({list(self._pairs)!r})"
