"""Start the watch for notices, whose parts lie beside this file as they do in the package."""

import sys

from node.notices import main

if __name__ == "__main__":
    main(sys.argv[1])
