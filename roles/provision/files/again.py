"""Start what the container ran; its parts lie beside this file as they do in the package."""

import sys

from node.process.again import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
