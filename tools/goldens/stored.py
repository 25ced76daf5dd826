"""Reads the committed goldens, and compares or writes what a generator computed."""

import argparse
import gzip
import json
import pathlib

REPO = pathlib.Path(__file__).resolve().parents[2]
HOME = REPO / "internal" / "golden" / "testdata"


def read(name: str) -> bytes:
    plain = HOME / name
    if plain.exists():
        return plain.read_bytes()
    return gzip.decompress((HOME / (name + ".gz")).read_bytes())


def text(name: str) -> str:
    return read(name).decode()


def lines(name: str) -> list[dict]:
    return [json.loads(line) for line in text(name).splitlines()]


def tensors(name: str) -> dict:
    from safetensors.torch import load  # not every generator needs torch

    return load(read(name))


def unpack(folder: str, to: pathlib.Path) -> pathlib.Path:
    """Writes a folder of goldens under plain names."""
    out = to / folder
    for f in sorted(p for p in (HOME / folder).rglob("*") if p.is_file()):
        name = f.relative_to(HOME).as_posix().removesuffix(".gz")
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        (to / name).write_bytes(read(name))
    return out


class Report:
    """Compares computed tensors with stored ones, or writes them where --out is given."""

    def __init__(self, description: str):
        p = argparse.ArgumentParser(description=description)
        p.add_argument("names", nargs="*", help="which ones; all if none is named")
        p.add_argument("--out", type=pathlib.Path, help="write here instead of comparing; pack.py then stores it")
        self.args = p.parse_args()
        self.failed = 0

    def wants(self, name: str) -> bool:
        return not self.args.names or name in self.args.names

    def tensors(self, name: str, got: dict, tolerance: float) -> None:
        from safetensors.torch import save_file

        if self.args.out:
            dest = self.args.out / name
            dest.parent.mkdir(parents=True, exist_ok=True)
            kept = {k: v for k, v in tensors(name).items() if k not in got}
            if kept:
                print(f"{name}: kept as stored: {', '.join(sorted(kept))}")
            got = got | kept
            save_file({k: v.clone() for k, v in got.items()}, dest)
            return
        want = tensors(name)
        worst, at = 0.0, "-"
        for key, x in got.items():
            y = want[key]
            if x.shape != y.shape:
                self.fail(f"{name}: {key} has shape {tuple(x.shape)}, stored {tuple(y.shape)}")
                continue
            d = (x.double() - y.double()).abs().max().item() if x.numel() else 0.0
            if not x.dtype.is_floating_point and d != 0:
                self.fail(f"{name}: {key} differs")
            elif d > worst:
                worst, at = d, key
        if worst > tolerance:
            self.fail(f"{name}: {at} is {worst:.1e} away, at most {tolerance:.0e} expected")
        missing = sorted(set(want) - set(got))
        print(f"{name}: {len(got)} of {len(want)} tensors, largest difference {worst:.1e} ({at})" + (f"; not computed: {', '.join(missing)}" if missing else ""))

    def equal(self, name: str, what: str, got, want) -> None:
        if got != want:
            self.fail(f"{name}: {what}: {got!r}, stored {want!r}")

    def fail(self, message: str) -> None:
        self.failed += 1
        print("DIFFERS", message)

    def done(self) -> None:
        raise SystemExit(1 if self.failed else 0)
