"""``python -m advectio``: the same as the command ``advectio``.

``advectio exec`` stands in front of every rank of a job, so it must cost next to nothing: it is answered here, before
anything that draws tables is imported.
"""

import sys


def main() -> None:
    if len(sys.argv) > 1 and sys.argv[1] == "exec":
        from advectio.rank import main as rank_main

        sys.exit(rank_main(sys.argv[2:]))
    from advectio.cli import main as cli_main

    cli_main()


if __name__ == "__main__":
    main()
