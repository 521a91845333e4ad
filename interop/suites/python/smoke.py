"""What the Python suites share: a topic's name, and results."""

import os
import time
import traceback
import uuid

BROKER = os.environ["BROKER"]


def unique(name):
    return "py-%s-%s" % (name, uuid.uuid4().hex[:8])


def main(prefix, cases):
    """Runs functions, one result each."""
    with open(os.environ["RESULTS"], "a") as results:
        for case in cases:
            name = prefix + "/" + case.__name__
            print("---", name, flush=True)
            began = time.monotonic()
            try:
                outcome = "skip" if case() == "skip" else "pass"
            except Exception:
                traceback.print_exc()
                outcome = "fail"
            results.write("%s %s\n" % (outcome, name))
            results.flush()
            print("%s in %.1f s" % (outcome, time.monotonic() - began), flush=True)


def eventually(found, timeout=30):
    """Calls until the answer is true, and returns it."""
    end = time.monotonic() + timeout
    while True:
        value = found()
        if value:
            return value
        assert time.monotonic() < end, "did not come about in %d s" % timeout
        time.sleep(0.1)
