"""Start the watchdog, whose parts lie beside this file as they do in the package."""

import sys

from node.watchdog.main import main

if __name__ == "__main__":
    main(sys.argv[1])
