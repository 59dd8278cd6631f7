"""For scripts that measure: repeats what other programs on the machine disturbed."""
import fcntl
import os
import resource
import time

TRIES = 8
PAUSE = 5  # seconds between tries
MOST = 0.03  # processor time of others, for each second, that is tolerated


def seconds_of_others():
    """Processor time of everything but this process and the children that it waited for, other
    guests of a virtual machine's host included."""
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system, _, _, _, _, steal = (int(n) for n in file.readline().split()[1:9])
    own = sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))
    return (user + nice + system + steal) / os.sysconf("SC_CLK_TCK") - own


def measure(function, lock=os.devnull, tries=TRIES):
    """What function returns, from the first try during which others were quiet, else the last.
    lock: a file that is locked meanwhile."""
    for turn in range(tries):
        with open(lock, "a", encoding="ascii") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            start, before = time.monotonic(), seconds_of_others()
            result = function()
            if (seconds_of_others() - before < MOST * (time.monotonic() - start)
                    or turn == tries - 1):
                return result
        print("the machine was busy with something else: again", flush=True)
        time.sleep(PAUSE)
    return None
