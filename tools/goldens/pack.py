"""Copies made goldens into internal/golden/testdata.

    python3 tools/goldens/pack.py FROM [FOLDER…]

FROM holds folders as the generators write them (hf, reference, …); without
FOLDER all of them are packed. A file that gzip makes at least a tenth smaller is
stored as NAME.gz, which package golden unpacks; the rest is stored as it is.
Equal input gives equal bytes, so an unchanged golden leaves no trace in git.
SHA256SUMS lists every golden by its unpacked contents; a test compares.
"""

import gzip
import hashlib
import pathlib
import sys

HOME = pathlib.Path(__file__).resolve().parents[2] / "internal" / "golden" / "testdata"


def pack(source: pathlib.Path, target: pathlib.Path) -> None:
    raw = source.read_bytes()
    small = gzip.compress(raw, 9, mtime=0)
    # Byte 9 names the operating system; 255 is "unknown" everywhere.
    small = small[:9] + b"\xff" + small[10:]
    plain, packed = target, target.with_name(target.name + ".gz")
    target.parent.mkdir(parents=True, exist_ok=True)
    plain.unlink(missing_ok=True)
    packed.unlink(missing_ok=True)
    if len(raw) >= 4096 and len(small) <= 0.9 * len(raw):
        packed.write_bytes(small)
    else:
        plain.write_bytes(raw)


def main() -> None:
    source = pathlib.Path(sys.argv[1])
    folders = sys.argv[2:] or sorted(p.name for p in source.iterdir() if p.is_dir())
    for folder in folders:
        top = source / folder
        for f in sorted(p for p in (top.rglob("*") if top.is_dir() else [top]) if p.is_file()):
            pack(f, HOME / f.relative_to(source))
    total, sums = 0, []
    for f in sorted(p for p in HOME.rglob("*") if p.is_file()):
        raw = f.read_bytes()
        total += len(raw)
        name = f.relative_to(HOME).as_posix()
        if name in ("README.md", "SHA256SUMS", "SHA256SUMS.gz"):
            continue
        if name.endswith(".gz"):
            raw, name = gzip.decompress(raw), name[:-3]
        sums.append(f"{hashlib.sha256(raw).hexdigest()}  {name}\n")
    (HOME / "SHA256SUMS").write_text("".join(sorted(sums, key=lambda s: s[66:])))
    print(f"{HOME}: {total / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
