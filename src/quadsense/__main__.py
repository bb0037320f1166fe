"""``python -m quadsense`` is the command ``quadsense``."""

from quadsense.cli import main

if __name__ == "__main__":
    main()
