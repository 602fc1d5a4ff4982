"""``python -m advectio``: the same as the command ``advectio``.

A model waits for ``advectio run`` and ``advectio exec``, so both must cost next to nothing: they are answered here, before
anything that draws tables or help pages is imported.
"""

import sys


def main() -> None:
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
