"""How long a command takes and how much memory, run several times: WHAT ROUNDS COMMAND... ; # in a word is the number of the round."""

import os
import subprocess
import sys
import time

from bed import at, line

what, rounds, command = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
taken, processor, largest = [], [], 0
for number in range(rounds):
    words = [word.replace("#", str(number)) for word in command]
    start = time.perf_counter()
    child = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    taken.append(time.perf_counter() - start)
    processor.append(used.ru_utime + used.ru_stime)
    if status != 0:
        sys.exit(f"{words} failed")
    largest = max(largest, used.ru_maxrss)
line(
    what,
    rounds=rounds,
    p50_ms=at(taken, 50) * 1000,
    p99_ms=at(taken, 99) * 1000,
    processor_ms=at(processor, 50) * 1000,
    rss_mb=largest / 1024,
)
