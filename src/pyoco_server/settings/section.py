"""The parts of a section of the settings: variables, their readers, their section."""

from enum import StrEnum
from typing import Final

import msgspec
from pydantic import BaseModel, ConfigDict
from pydantic.fields import FieldInfo


class Reader(StrEnum):
    """A program that reads a setting."""

    GATEWAY = "gateway"
    WORKER = "worker"


GATEWAY: Final = (Reader.GATEWAY,)
WORKER: Final = (Reader.WORKER,)
BOTH: Final = (Reader.GATEWAY, Reader.WORKER)
UNUSED: Final = ()


class Var(msgspec.Struct, frozen=True):
    """The environment variable a field is set by, and who reads it; the value of a secret appears in no text."""

    name: str
    readers: tuple[Reader, ...]
    secret: bool = False


class Section(BaseModel):
    """Settings of one subject, each field annotated with its ``Var``."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    @classmethod
    def variables(cls, *fields: str) -> str:
        """Return the names of the variables of some fields, for an error text."""
        return ", ".join(var_of(cls.model_fields[field]).name for field in fields)


def var_of(field: FieldInfo) -> Var:
    """Return the variable of a field."""
    return next(note for note in field.metadata if isinstance(note, Var))
