"""What advectiod tells of a config, as JSON. Types alone: nothing on the way to the start of a model needs them."""

from typing import NotRequired, TypedDict

from advectio.protocol import ConfigName, NotReadable, UnmatchedRule


class Value(TypedDict):
    """One key of a config."""

    key: str
    value: str  # as it stands in YAML
    origin: str  # FILE:LINE, or: default
    type: str  # what may stand there
    doc: str
    number: float | None  # bytes or seconds, where it is a number


class OperatorOutput(TypedDict):
    """One of a rule's `outputs` that has operators."""

    number: int  # in that list
    path: str
    text: str  # all of it, as YAML
    split: bool
    origin: str


class Rule(TypedDict):
    """Of the list `datasets`."""

    match: str
    origin: str
    values: list[Value]
    processed: list[OperatorOutput]
    outputs: list[str]  # paths of the others


# Of stage.in or stage.out. "in" and "from" are no names in Python.
Transfer = TypedDict("Transfer", {"from": str, "to": str})
Transfers = TypedDict("Transfers", {"in": list[Transfer], "out": list[Transfer]})


class EventCommands(TypedDict):
    """`on`."""

    commands: dict[str, str]  # event → command
    at_once: int
    timeout_s: float


class RestartSet(TypedDict):
    """Of the list `sets`."""

    name: str
    match: list[str]
    link: str
    pointer: str | None
    keep: int | None
    members: list[str]
    origin: str


# Of the list `couple`.
CoupleRule = TypedDict(
    "CoupleRule",
    {
        "match": str,
        "from": list[str],  # names of programs
        "to": list[str],
        "mode": str,
        "when": str,
        "keep": str,
        "exclude": list[str],
        "variables": list[str],
        "origin": str,
    },
)


class Here(TypedDict):
    """What `auto` comes to on this node."""

    memory_bytes: int
    threads: int
    stage_free_bytes: int | None  # None: the stage cannot be looked at
    stage_bytes_max: int | None
    segment_bytes: int
    stage_error: str | None


class Like(TypedDict):
    """What of the config fits none of the files that it is held against."""

    unmatched_rules: list[UnmatchedRule]
    config_names: list[ConfigName]


class Config(TypedDict):
    """What `config explain --json` prints."""

    values: list[Value]
    datasets: list[Rule]
    couple: list[CoupleRule]
    transfers: Transfers
    on: EventCommands
    sets: list[RestartSet]
    here: Here
    not_readable: list[NotReadable]
    like: NotRequired[Like]  # of `check --like`
