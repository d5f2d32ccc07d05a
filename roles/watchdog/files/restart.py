"""Start what restarts engines; its parts lie beside this file as they do in the package."""

import sys

from node.watchdog.restart import main

if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
