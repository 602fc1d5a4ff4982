"""How every table of the command line looks. Light: rich is imported where a table is made."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

NAME_MAX = 60


def plain() -> "Table":
    """No lines, two blanks between columns."""
    from rich.table import Table

    return Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))


def of_datasets(numbers: Sequence[str], last: str, *, whole_names: bool = False, cut: bool = False) -> "Table":
    """A dataset's name, numbers to the right, and words at the end. ``whole_names``: long names are folded, not cut;
    ``cut``: the words at the end are cut, not folded."""
    table = plain()
    if whole_names:
        table.add_column("dataset", overflow="fold")
    else:
        table.add_column("dataset", no_wrap=True, overflow="ellipsis", max_width=NAME_MAX)
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column(last, no_wrap=cut)
    return table
