"""What the scripts that time other libraries share."""
import argparse
import contextlib
import fcntl
import os
import sys
import time

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
PACKAGES = ["onnxruntime==1.31.1", "onnx==1.23.2", "numpy==2.4.6"]


def options(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--library", default=os.path.join(ROOT, "build", "release", "libsinter.so"))
    parser.add_argument("--venv", default=os.path.join(ROOT, "build", "peers-venv"),
                        help="made if it is not there")
    parser.add_argument("--lock", default=os.devnull,
                        help="a file to lock while measuring, where others measure too")
    parser.add_argument("--threads", type=int, default=2)
    return parser


sys.path += [os.path.join(ROOT, *parts) for parts in (("tools",), ("tools", "dev"), ("python",))]


def enter(folder):
    """Runs the script again inside the virtual environment in folder."""
    import scratch_venv

    scratch_venv.enter(folder, PACKAGES)


class Compiled:
    """A graph of tools/graph_json.py that is one partition, but for Ends, over arrays by tensor id.
    The memory of an array is the tensor's, whatever the array's shape. engine: None for the default
    one. run() executes it."""

    def __init__(self, graph, arrays, mode="strict", threads=2, engine=None):
        import sinter

        loaded = sinter.Graph.from_json(graph.text(), fpmath=mode, apply_to_int=True, engine=engine)
        # An End has no outputs: it marks one of the graph that ops of the graph read too.
        (partition,) = (p for p in loaded.partitions() if p.outputs)
        compiled = partition.compile()
        self.execution = compiled.bind({
            port.id: sinter.view(arrays[port.id], port.dtype, port.shape, port.strides)
            for port in (*compiled.inputs, *compiled.outputs)})
        self.stream = sinter.Stream(threads, engine=engine)

    def run(self):
        self.execution.run(self.stream)


@contextlib.contextmanager
def preparing(lock):
    """Work between measurements, which others may do meanwhile too but not measure."""
    with open(lock, "a", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        yield


def rest():
    """Threads that wait for work in a loop fall asleep (onnxruntime's take the other's processors
    for 10 ms and more)."""
    time.sleep(0.06)


def last_level_cache():
    """Bytes, or a guess: as graph_runner has it."""
    try:
        with open("/sys/devices/system/cpu/cpu0/cache/index3/size", encoding="ascii") as file:
            return int(file.read().strip().removesuffix("K")) << 10
    except OSError:
        return 32 << 20
