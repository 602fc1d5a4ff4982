"""Outputs with ``cmor``: files as a MIP's tables want them, one variable a file. ``rule`` reads what the user wants, ``tables`` what the
MIP wants, ``attributes`` makes global attributes and names of both. advectiod makes each variable; ``layout`` finds the table's axes in
what it has made, ``writing`` writes the file, and ``making`` goes through all of that in order."""
