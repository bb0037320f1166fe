"""Runs that survive: what a solve has come to, in a folder, from which the same call goes on.

A solve is a row of runs of the one loop, in an order that follows from the data and the request.
The folder is a journal of them (`journal`): the runs that are over, and the last state of the one
that is not. Who goes on replays it: a run that is over begins at its last state and is judged at
once, the one that was interrupted goes on from its own, and those after it run as ever. `folder`
keeps the files whole, `fingerprint` knows whether data and request are the same.
"""

from quadsense.run.checkpoint.journal import Journal, Record, to_journal

__all__ = ["Journal", "Record", "to_journal"]
