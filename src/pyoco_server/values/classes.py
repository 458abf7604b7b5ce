"""The tags that name a class: enums, dataclasses, msgspec structs and pydantic models.

They are written as ``{"$dataclass": ["module:qualname", {field: value}]}``, and read as pickle reads objects: the
module is imported, the object is made without its constructor, and its fields are set. Only classes of these four kinds
are accepted, and nothing of theirs is called. An object whose class customises copying, or that has state beside its
fields, is not written here; pickle, which honours all of that, takes it.
"""

import dataclasses
import enum
import importlib
import sys
import types
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from pyoco_server.values.tags import Encode, Reader, listed, text_of

_HEAP_TYPE: Final = 1 << 9
_CUSTOM: Final = ("__reduce__", "__reduce_ex__", "__copy__", "__deepcopy__", "__getnewargs__", "__getnewargs_ex__")
_FACTORIES: Final = (list, dict, set, tuple, frozenset)
"""Default factories that run no user code."""
_GETSTATE: Final = (object.__getstate__, getattr(dataclasses, "_dataclass_getstate", None))
_SETSTATE: Final = (None, getattr(dataclasses, "_dataclass_setstate", None))


def write(value: Any, part: Encode) -> Any:  # noqa: ANN401 any value
    """Write an object of one of the four kinds; None if it is none of them, or not made of its fields alone."""
    cls = type(value)
    if isinstance(value, enum.Enum):
        return _write_enum(value, cls)
    found: tuple[str, Mapping[str, Any]] | None = None
    if "__dataclass_fields__" in cls.__dict__:
        found = _dataclass_state(value, cls)
    elif type(cls) is type(msgspec.Struct):
        found = _struct_state(value, cls)
    elif _is_model(cls):
        return _write_model(value, cls, part)
    if found is None or not _is_importable(cls):
        return None
    tag, fields = found
    return {tag: [_path_of(cls), {name: part(item) for name, item in fields.items()}]}


# --- Classes by name -------------------------------------------------------------------------------------------------


def _path_of(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def _is_importable(cls: type) -> bool:
    """Does its name lead to the class in this process?"""
    found: Any = sys.modules.get(cls.__module__)
    for name in cls.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is cls


def _class_at(path: Any) -> type:  # noqa: ANN401 any JSON
    module, _, qualname = text_of(path).partition(":")
    try:
        found: Any = importlib.import_module(module)
    except (Exception, SystemExit) as error:
        raise LookupError(f"cannot import '{module}': {type(error).__name__}: {error}") from error
    for name in qualname.split("."):
        found = vars(found).get(name) if isinstance(found, types.ModuleType | type) else None
    if isinstance(found, type):
        return found
    raise LookupError(f"there is no class '{qualname}' in '{module}'")


# --- Enums -----------------------------------------------------------------------------------------------------------


def _write_enum(value: enum.Enum, cls: type[enum.Enum]) -> Any:  # noqa: ANN401
    name: str | None = value._name_
    if name is None or cls._member_map_.get(name) is not value or not _is_importable(cls):
        return None
    return {"$enum": [_path_of(cls), name]}


def _read_enum(body: Any, _: Encode) -> enum.Enum:  # noqa: ANN401
    path, name = listed(body)
    cls = _class_at(path)
    member = cls._member_map_.get(text_of(name)) if issubclass(cls, enum.Enum) else None
    if member is None:
        raise LookupError(f"'{path}' is not an Enum with a member '{name}'")
    return member


# --- Dataclasses -----------------------------------------------------------------------------------------------------


def _dataclass_state(value: Any, cls: type) -> tuple[str, Mapping[str, Any]] | None:  # noqa: ANN401
    if not _is_plain(cls):
        return None
    state = object.__getstate__(value)  # the default one: __dict__ and slots
    parts = state if isinstance(state, tuple) else (state,)
    fields = {name: item for one in parts for name, item in (one or {}).items()}
    names = [field.name for field in dataclasses.fields(cls)]
    return ("$dataclass", {name: fields[name] for name in names}) if fields.keys() == set(names) else None


def _is_plain(cls: type) -> bool:
    """Does an object consist of its attributes alone, and is it made and copied in the default way?"""
    return (
        all(getattr(cls, name) is getattr(object, name) for name in ("__new__", "__reduce_ex__", "__reduce__"))
        and not any(hasattr(cls, name) for name in _CUSTOM[2:])
        and getattr(cls, "__getstate__", None) in _GETSTATE
        and getattr(cls, "__setstate__", None) in _SETSTATE
        and all(base is object or base.__flags__ & _HEAP_TYPE for base in cls.__mro__)
    )


def _read_dataclass(body: Any, part: Encode) -> Any:  # noqa: ANN401
    path, given = _fields_in(body)
    cls = _class_at(path)
    if "__dataclass_fields__" not in cls.__dict__ or not _is_plain(cls):
        raise TypeError(f"'{path}' is not a dataclass that its fields alone make")
    fields = {field.name: field for field in dataclasses.fields(cls)}
    _refuse_unknown(path, given, fields)
    made: Any = object.__new__(cls)
    for name, field in fields.items():
        _set(made, cls, name, part(given[name]) if name in given else _default(path, field))
    return made


def _default(path: str, field: "dataclasses.Field[Any]") -> Any:  # noqa: ANN401
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory in _FACTORIES:
        return field.default_factory()
    raise LookupError(f"'{path}' has got a field '{field.name}' since, without a default")


def _set(made: object, cls: type, name: str, value: Any) -> None:  # noqa: ANN401
    """Set a field past the class's own ``__setattr__`` and descriptors, as pickle does."""
    for base in cls.__mro__:
        slot = base.__dict__.get(name)
        if isinstance(slot, types.MemberDescriptorType):
            slot.__set__(made, value)
            return
    made.__dict__[name] = value


# --- msgspec structs -------------------------------------------------------------------------------------------------


def _struct_state(value: Any, cls: Any) -> tuple[str, Mapping[str, Any]] | None:  # noqa: ANN401
    if not _is_plain_struct(cls) or getattr(value, "__dict__", None):
        return None
    return "$struct", {name: getattr(value, name) for name in cls.__struct_fields__}


def _is_plain_struct(cls: Any) -> bool:  # noqa: ANN401
    """Does no code of the class run when an object is made or copied?"""
    base = msgspec.Struct
    return not hasattr(cls, "__post_init__") and all(
        getattr(cls, name, None) == getattr(base, name, None)
        for name in ("__reduce__", "__reduce_ex__", "__getstate__")
    )


def _read_struct(body: Any, part: Encode) -> Any:  # noqa: ANN401
    path, given = _fields_in(body)
    cls: Any = _class_at(path)
    if type(cls) is not type(msgspec.Struct) or not _is_plain_struct(cls):
        raise TypeError(f"'{path}' is not a struct that its fields alone make")
    _refuse_unknown(path, given, cls.__struct_fields__)
    for field in msgspec.structs.fields(cls):
        if field.name not in given and field.default is msgspec.NODEFAULT and field.default_factory not in _FACTORIES:
            raise LookupError(f"'{path}' has got a field '{field.name}' since, without a default")
    # A struct has no constructor of the user's: this one is msgspec's, and every argument is a field.
    positional = [name for name in cls.__struct_fields__ if name in given]
    return cls(**{name: part(given[name]) for name in positional})


# --- pydantic models -------------------------------------------------------------------------------------------------


def _is_model(cls: type) -> bool:
    """Is it a pydantic model? Asked without importing pydantic: there is no model where it was not imported."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and issubclass(cls, pydantic.BaseModel)


def _is_plain_model(cls: Any) -> bool:  # noqa: ANN401
    base = sys.modules["pydantic"].BaseModel
    return cls.__new__ is object.__new__ and all(
        getattr(cls, name, None) is getattr(base, name, None) for name in (*_CUSTOM, "__getstate__", "__setstate__")
    )


def _write_model(value: Any, cls: Any, part: Encode) -> Any:  # noqa: ANN401
    fields = vars(value)
    has_more = value.__pydantic_extra__ or value.__pydantic_private__
    if not _is_plain_model(cls) or has_more or fields.keys() != cls.__pydantic_fields__.keys():
        return None
    if not _is_importable(cls):
        return None
    names = sorted(value.__pydantic_fields_set__)
    return {"$model": [_path_of(cls), {name: part(item) for name, item in fields.items()}, names]}


def _read_model(body: Any, part: Encode) -> Any:  # noqa: ANN401
    path, given, names = listed(body)
    cls: Any = _class_at(path)
    if not _is_model(cls) or not _is_plain_model(cls) or not isinstance(given, dict):
        raise TypeError(f"'{path}' is not a pydantic model that its fields alone make")
    known = cls.__pydantic_fields__
    _refuse_unknown(path, given, known)
    state = {name: part(item) for name, item in given.items()}
    for name, field in known.items():
        if name not in state:
            if field.is_required() or (field.default_factory is not None and field.default_factory not in _FACTORIES):
                raise LookupError(f"'{path}' has got a field '{name}' since, without a default")
            state[name] = field.get_default(call_default_factory=True)
    made = object.__new__(cls)
    extra: dict[str, Any] | None = {} if cls.model_config.get("extra") == "allow" else None
    private: dict[str, Any] | None = {} if cls.__private_attributes__ else None
    sys.modules["pydantic"].BaseModel.__setstate__(
        made,
        {
            "__dict__": state,
            "__pydantic_fields_set__": {text_of(name) for name in listed(names)} & state.keys(),
            "__pydantic_extra__": extra,
            "__pydantic_private__": private,
        },
    )
    return made


# --- What they share -------------------------------------------------------------------------------------------------


def _fields_in(body: Any) -> tuple[str, dict[str, Any]]:  # noqa: ANN401
    path, given = listed(body)
    if not isinstance(given, dict):
        raise TypeError("expected the class and its fields")
    return text_of(path), given


def _refuse_unknown(path: str, given: Mapping[str, Any], known: Any) -> None:  # noqa: ANN401
    unknown = [name for name in given if name not in known]
    if unknown:
        raise LookupError(f"'{path}' has no field '{unknown[0]}' any more")


READERS: Final[dict[str, Reader]] = {
    "$enum": _read_enum,
    "$dataclass": _read_dataclass,
    "$struct": _read_struct,
    "$model": _read_model,
}
