"""Sequences: many executes in one call."""
from collections.abc import Iterable
from ctypes import byref, c_void_p
from typing import Optional

from ._library import Handle, call, instance, items
from .partition import Execution
from .runtime import Engine, Stream, engine_of, stream_of


class Sequence(Handle):
    """Executions that run in order in one call, such as all partitions of a model for one token.
    Results are those of running them one by one, bit by bit; it is faster where they are small.
    An execution may read what an earlier one writes: give both the same array. For one thread at a
    time. It keeps the executions alive; Execution.bind gives them other arrays between two runs.

    executions  what runs, in this order; append adds more
    engine      whose memory it uses; the executions may be of other engines
    """

    def __init__(self, executions: Iterable[Execution] = (), *,
                 engine: Optional[Engine] = None) -> None:
        pointer = c_void_p()
        call("sequence_create", byref(pointer), engine_of(engine))
        super().__init__("sequence", pointer)
        self._executions: list[Execution] = []
        for execution in items("a list of executions", executions):
            self.append(execution)

    def append(self, execution: Execution) -> None:
        """Adds an execution behind the others; the same one may be there several times."""
        one = instance("what a sequence runs", execution, Execution)
        call("sequence_append", self, one._compiled, len(one._inputs), one._inputs,
             len(one._outputs), one._outputs)
        self._executions.append(one)

    def run(self, stream: Optional[Stream] = None) -> None:
        """Runs all of them, and returns when the outputs are written. Other Python threads run
        meanwhile. stream None: the stream of this thread.

        A SinterError as of Execution.run, whose message begins with the number of the execution,
        counted from 0. Nothing is written then, except where the error lies in values that an
        earlier execution computes: those before it have run.
        """
        stream = stream_of(stream)
        with stream.lock:
            call("sequence_execute", self, stream)
