"""``python -m advectio``: the same as the command ``advectio``.

A model waits for ``advectio run`` and ``advectio exec``, so both must cost next to nothing: they are answered here, before
anything that draws tables or help pages is imported.
"""

import os
import sys


def open_standard_streams() -> None:
    """cron and daemons may close them. What is opened next would get their numbers, and messages would go into it."""
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        try:
            os.fstat(number)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            os.set_inheritable(number, True)
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115


def main() -> None:
    open_standard_streams()
    command, words = (sys.argv[1], sys.argv[2:]) if len(sys.argv) > 1 else ("", [])
    if command == "exec":
        from advectio.rank import main as rank_main

        sys.exit(rank_main(words))
    if command == "run":
        from advectio import run_line

        options = run_line.read(words)
        if options is not None:
            sys.exit(run_line.run(options))
    from advectio.cli import main as cli_main

    cli_main()


if __name__ == "__main__":
    main()
