"""What ends with a row of tests, not with its worker.

A session fixture ends with the last test of its worker, when no other worker has anything left to
do: a minute of a whole run for hosts that nobody had needed for half an hour.
"""

from contextlib import ExitStack

OF_ROW = ExitStack()
