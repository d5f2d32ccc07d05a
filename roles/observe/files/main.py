"""Start the program, whose parts lie beside this file as they do in the package."""

import sys

from node.observe.main import main

if __name__ == "__main__":
    main(sys.argv[1])
