"""What the checks of all Python clients share: the plan, and the report.

A client is started with the path of a plan, a JSON object that the test has written. It prints one
JSON object a line for every check: its name, and what was wrong, null if nothing was.
"""

import json
import sys

with open(sys.argv[1], encoding="utf-8") as f:
    plan = json.load(f)


def check(name):
    """Runs the decorated function as a check."""

    def run(f):
        error = None
        try:
            f()
        except BaseException as e:  # whatever a client raises is what is wrong
            error = f"{type(e).__name__}: {e}"[:600]
        print(json.dumps({"check": name, "error": error}), flush=True)

    return run


def equal(got, want, what):
    if got != want:
        raise AssertionError(f"{what} is {got!r}, want {want!r}")


def close(got, want, what):
    equal(len(got), len(want), "the number of " + what)
    for i, (g, w) in enumerate(zip(got, want)):
        if abs(g - w) > 1e-9:
            raise AssertionError(f"{what}[{i}] is {g}, want {w}")


def refused(call, kind, **fields):
    """Expects call to raise kind with these attributes, and returns the exception."""
    try:
        call()
    except kind as e:
        for name, want in fields.items():
            equal(getattr(e, name, None), want, "the error's " + name)
        return e
    raise AssertionError(f"no {kind.__name__}")


def until_busy(call, kind):
    """Asks a server that is nearly always full until it refuses."""
    for _ in range(200):
        try:
            call()
        except kind as e:
            return e
    raise AssertionError(f"no {kind.__name__} in 200 requests")
