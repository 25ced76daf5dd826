"""Checks talf's Parquet shards with pyarrow and DuckDB.

    check_shards.py TALF [SET...]

TALF is the talf binary. Every SET must hold the rows, token sums and label mass
that `talf inspect --json` prints. Without SETs, Go writes sets of every kind
together with their rows, and the values must be equal, too. Run it in the
repository's root.
"""

import json
import math
import os
import subprocess
import sys
import tempfile

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def same(what, got, want):
    # All three sum in pairs or with compensation: errors are near 1e-15.
    ok = math.isclose(got, want, rel_tol=1e-12) if isinstance(want, float) else got == want
    if not ok:
        raise SystemExit(f"{what}: {got}, want {want}")


def flat(table, name):
    """All values of a list column, as numpy."""
    column = table.column(name).combine_chunks()
    values = column.flatten()
    if pa.types.is_fixed_size_binary(values.type):
        width = values.type.byte_width
        return np.frombuffer(b"".join(v.as_py() for v in values), np.uint8).reshape(-1, width)
    return values.to_numpy(zero_copy_only=False)


def check(talf, folder):
    found = json.loads(subprocess.run([talf, "inspect", "--json", folder], check=True, capture_output=True).stdout)
    meta, stats = found["meta"], found["stats"]
    files = [os.path.join(folder, s["file"]) for s in found["shards"]]
    labels = "label_prob" if meta["labels"] == "topk" else "label_full"
    nodes = 1 + meta["k"] * (meta["depth"] - 1)

    # pyarrow
    tables = [pq.read_table(f) for f in files]
    for f, t, s in zip(files, tables, found["shards"]):
        own = json.loads(pq.ParquetFile(f).schema_arrow.metadata[b"talf.meta"])
        same(f"{f}: meta", own, meta)
        same(f"{f}: rows", t.num_rows, s["rows"])
        for g in range(pq.ParquetFile(f).num_row_groups):
            size = pq.ParquetFile(f).metadata.row_group(g).total_byte_size
            if size > 64 << 20:
                raise SystemExit(f"{f}: row group {g} of {size} bytes, want at most 64 MiB")
    t = pa.concat_tables(tables)
    same("pyarrow: rows", t.num_rows, stats["rows"])
    same("pyarrow: tokens", len(flat(t, "tokens")), stats["tokens"])
    same("pyarrow: token sum", int(flat(t, "tokens").sum(dtype=np.int64)), stats["token_sum"])
    same("pyarrow: tree sum", int(flat(t, "tree_token").sum(dtype=np.int64)), stats["tree_sum"])
    same("pyarrow: loss tokens", int(flat(t, "loss_mask").sum()), stats["loss_tokens"])
    same("pyarrow: label mass", float(flat(t, labels).astype(np.float64).sum()), float(stats["label_mass"]))
    if labels == "label_prob":
        same("pyarrow: tail mass", float(flat(t, "label_tail").astype(np.float64).sum()), float(stats["tail_mass"]))
    if meta["features"] == "bf16":
        same("pyarrow: features", flat(t, "feature").shape, (stats["features"], 2 * meta["hidden"]))
    level, parent = flat(t, "tree_level").reshape(-1, nodes), flat(t, "tree_parent").reshape(-1, nodes)
    want = np.where(parent < 0, 0, 1 + np.take_along_axis(level, np.maximum(parent, 0), axis=1))
    same("pyarrow: levels that follow from parents", bool((level == want).all()), True)

    # DuckDB
    db = duckdb.connect()
    one = lambda sql: db.execute(sql.replace("SET", "read_parquet($files)"), {"files": files}).fetchone()[0]
    same("duckdb: rows", one("select count(*) from SET"), stats["rows"])
    same("duckdb: tokens", int(one("select sum(len(tokens)) from SET")), stats["tokens"])
    same("duckdb: token sum", int(one("select sum(x) from (select unnest(tokens) x from SET)")), stats["token_sum"])
    same("duckdb: label mass", one(f"select fsum(x::double) from (select unnest({labels}) x from SET)"), float(stats["label_mass"]))
    return t


def compare(t, path):
    """Every value of every row against what Go wrote beside the set."""
    rows = json.load(open(path))
    same(f"{path}: rows", t.num_rows, len(rows))
    for i, want in enumerate(rows):
        row = t.slice(i, 1)
        for name, values in want.items():
            got = flat(row, name)
            if got.dtype == np.float32:
                got = got.view(np.uint32)
            same(f"{path}: row {i}, {name}", bool(np.array_equal(got.ravel(), np.array(values))), True)


def main(talf, sets):
    if sets:
        for s in sets:
            check(talf, s)
        return
    with tempfile.TemporaryDirectory() as folder:
        env = dict(os.environ, TALF_EXPORT=folder)
        subprocess.run(["go", "test", "-count=1", "-run", "^TestExportForOtherReaders$", "./data"], check=True, env=env)
        kinds = sorted(n[: -len(".json")] for n in os.listdir(folder) if n.endswith(".json"))
        same("kinds of sets", len(kinds), 4)
        for kind in kinds:
            t = check(talf, os.path.join(folder, kind))
            compare(t, os.path.join(folder, kind + ".json"))
    print(f"{len(kinds)} sets read by pyarrow {pa.__version__} and DuckDB {duckdb.__version__}: rows, sums and values agree")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    main(sys.argv[1], sys.argv[2:])
