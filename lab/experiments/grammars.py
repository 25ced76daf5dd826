#!/usr/bin/env python3
"""Times grammars of JSON Schemas: talf, llguidance and xgrammar, in turn on the same answers and tokenizer.

    grammars.py GRAMMARBENCH TOKENIZER DATA [--limit N] [--rounds N] [--seconds N] [--llama SOURCES BUILD]

GRAMMARBENCH is the built tools/grammarbench, TOKENIZER a directory with tokenizer.json, DATA that of
JSONSchemaBench's maskbench. Schemas are those with a valid value that all three compile and allow, N from
evenly over all files. What is timed is compiling, and along the value's tokens a mask and the token after it:
cold with a grammar compiled anew, warm once more. Each is the least of the rounds, because other
work may share the machine. Needs llguidance, xgrammar, tokenizers and numpy.

--llama adds llama.cpp, given its sources and where it was built (shared libraries in bin): its grammar sampler applied
to all tokens, or to the one that is drawn, and the token accepted. Schemas become GBNF by the converter of llama-cpp-python, whose
sources have those of llama.cpp in vendor. Needs gcc and gguf, too, or the gguf-py of the sources.
"""
import argparse
import ctypes
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time

import numpy as np
import tokenizers
import llguidance
import llguidance.hf
import xgrammar


def order(value, schema):
    """The value with members in the order in which the schema's text first names them."""
    rank = {}

    def names(x):
        if isinstance(x, dict):
            for k, v in x.items():
                rank.setdefault(k, len(rank))
                names(v)
        elif isinstance(x, list):
            for v in x:
                names(v)

    names(schema)

    def put(x):
        if isinstance(x, dict):
            return {k: put(x[k]) for k in sorted(x, key=lambda k: rank.get(k, len(rank)))}
        return [put(v) for v in x] if isinstance(x, list) else x

    return put(value)


class Talf:
    name = "talf"

    def __init__(self, binary, directory):
        self.p = subprocess.Popen([binary, "masks", directory], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, schema, ids):
        self.p.stdin.write(json.dumps({"schema": schema, "ids": ids}) + "\n")
        self.p.stdin.flush()
        r = json.loads(self.p.stdout.readline())
        if "error" in r:
            raise ValueError(r["error"])
        if not r["accepted"]:
            raise ValueError("not accepted")
        return r["compile"], r["cold"], r["warm"]


class Peer:
    def ready(self):
        """What is done before the clock starts."""

    def run(self, schema, ids):
        began = time.perf_counter_ns()
        g = self.compile(schema)
        compiled = (time.perf_counter_ns() - began) / 1e3
        out = []
        for _ in range(2):
            m, spent = self.matcher(g), []
            for i in ids:
                self.ready()
                began = time.perf_counter_ns()
                self.mask(m)
                ok = self.accept(m, i)
                spent.append((time.perf_counter_ns() - began) / 1e3)
                if not ok:
                    raise ValueError("not allowed")
            if not self.accepting(m):
                raise ValueError("not accepted")
            out.append(spent)
        return compiled, out[0], out[1]


class LLGuidance(Peer):
    name = "llguidance"

    def __init__(self, path, size):
        self.tok = llguidance.LLTokenizer(open(path, encoding="utf-8").read())
        self.bits = np.zeros((size + 31) // 32, dtype=np.int32)
        self.made = None

    def compile(self, schema):
        g = llguidance.LLMatcher.grammar_from_json_schema(schema, overrides={"whitespace_flexible": True})
        m = llguidance.LLMatcher(self.tok, g)
        if m.is_error():
            raise ValueError(m.get_error())
        return m

    def matcher(self, g):
        return g.deep_copy()

    def mask(self, m):
        m.unsafe_compute_mask_ptr(self.bits.ctypes.data, self.bits.nbytes)

    def accept(self, m, i):
        return m.consume_token(i)

    def accepting(self, m):
        return m.is_accepting()


class XGrammar(Peer):
    name = "xgrammar"

    def __init__(self, path, size):
        t = tokenizers.Tokenizer.from_file(path)
        vocab = [""] * size
        for text, i in t.get_vocab().items():
            vocab[i] = text
        info = xgrammar.TokenizerInfo(vocab, xgrammar.VocabType.BYTE_LEVEL, vocab_size=size, stop_token_ids=[t.token_to_id("<|end_of_text|>")])
        self.compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        self.bits = np.zeros((1, (size + 31) // 32), dtype=np.int32)

    def compile(self, schema):
        return self.compiler.compile_json_schema(json.dumps(schema), strict_mode=False)

    def matcher(self, g):
        return xgrammar.GrammarMatcher(g)

    def mask(self, m):
        m.fill_next_token_bitmask(self.bits)

    def accept(self, m, i):
        return m.accept_token(i)

    def accepting(self, m):
        return m.is_completed()


class LlamaCpp(Peer):
    name = "llama.cpp"
    SHIM = """
#include <math.h>
#include "llama.h"
static void quiet(enum ggml_log_level l, const char *t, void *u) { (void)l; (void)t; (void)u; }
const void *vocab(const char *path) {
    llama_log_set(quiet, 0);
    struct llama_model_params p = llama_model_default_params();
    p.vocab_only = true;
    struct llama_model *m = llama_model_load_from_file(path, p);
    return m ? llama_model_get_vocab(m) : 0;
}
int size(const void *v) { return llama_vocab_n_tokens(v); }
void *grammar(const void *v, const char *rules) { return llama_sampler_init_grammar(v, rules, "root"); }
void *copy(void *s) { return llama_sampler_clone(s); }
void clear(llama_token_data *d, int n) { for (int i = 0; i < n; i++) d[i] = (llama_token_data){i, 0, 0}; }
void mask(void *s, llama_token_data *d, int n) {
    llama_token_data_array a = {d, n, -1, false};
    llama_sampler_apply(s, &a);
}
int allowed(llama_token_data *d, int i) { return d[i].logit > -INFINITY; }
void take(void *s, int i) { llama_sampler_accept(s, i); }
int check(void *s, int i) {
    llama_token_data d = {i, 0, 0};
    llama_token_data_array a = {&d, 1, -1, false};
    llama_sampler_apply(s, &a);
    return d.logit > -INFINITY;
}
"""

    def __init__(self, path, sources, build, size):
        work = tempfile.mkdtemp()
        lib = os.path.join(build, "bin")
        with open(os.path.join(work, "shim.c"), "w", encoding="utf-8") as f:
            f.write(self.SHIM)
        subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", work + "/shim.so", work + "/shim.c", "-I", sources + "/include", "-I", sources + "/ggml/include",
                        "-L", lib, "-lllama", "-lggml", "-lggml-base", "-Wl,-rpath," + os.path.abspath(lib)], check=True)
        self.lib = ctypes.CDLL(work + "/shim.so")
        for f in ("vocab", "grammar", "copy"):
            getattr(self.lib, f).restype = ctypes.c_void_p
        self.write(path, sources, work + "/vocab.gguf")
        self.vocab = ctypes.c_void_p(self.lib.vocab((work + "/vocab.gguf").encode()))
        if not self.vocab or self.lib.size(self.vocab) != size:
            raise ValueError("llama.cpp does not take the tokenizer")
        # of llama-cpp-python, by its path: the package would load another library
        at = os.path.join(sources, "..", "..", "llama_cpp", "llama_grammar.py")
        spec = importlib.util.spec_from_file_location("llama_grammar", at)
        self.convert = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.convert)
        self.size = size
        self.data = (ctypes.c_char * (12 * size))()
        t = tokenizers.Tokenizer.from_file(path)
        self.end = t.token_to_id("<|end_of_text|>")

    @staticmethod
    def write(path, sources, out):
        """A GGUF file of a tokenizer alone, a byte-level BPE."""
        try:
            import gguf
        except ImportError:
            sys.path.insert(0, os.path.join(sources, "gguf-py"))
            import gguf
        with open(path, encoding="utf-8") as f:
            t = json.load(f)
        vocab = dict(t["model"]["vocab"])
        added = {a["content"]: a["id"] for a in t["added_tokens"]}
        vocab.update(added)
        texts = sorted(vocab, key=vocab.get)
        merges = [m if isinstance(m, str) else " ".join(m) for m in t["model"]["merges"]]
        w = gguf.GGUFWriter(out, "llama")
        w.add_tokenizer_model("gpt2")
        w.add_tokenizer_pre("gpt-2")
        w.add_token_list(texts)
        w.add_token_types([gguf.TokenType.CONTROL if x in added else gguf.TokenType.NORMAL for x in texts])
        w.add_token_merges(merges)
        w.add_eos_token_id(vocab["<|end_of_text|>"])
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.write_tensors_to_file()
        w.close()

    def compile(self, schema):
        rules = self.convert.json_schema_to_gbnf(json.dumps(schema))
        g = self.lib.grammar(self.vocab, rules.encode())
        if not g:
            raise ValueError("not compiled")
        return g

    def matcher(self, g):
        return ctypes.c_void_p(self.lib.copy(ctypes.c_void_p(g)))

    def mask(self, m):
        self.lib.mask(m, self.data, self.size)

    def accept(self, m, i):
        if not self.lib.allowed(self.data, i):
            return False
        self.lib.take(m, i)
        return True

    def accepting(self, m):
        return self.lib.check(m, self.end)

    def ready(self):
        self.lib.clear(self.data, self.size)


class LlamaCppDrawn(LlamaCpp):
    """What its programs do while the token that they draw first is allowed: that token alone is looked at."""

    name = "llama.cpp, token drawn first"

    def __init__(self, other):
        self.__dict__.update(other.__dict__)

    def mask(self, m):
        pass

    def accept(self, m, i):
        if not self.lib.check(m, i):
            return False
        self.lib.take(m, i)
        return True

    def ready(self):
        pass


def quantiles(x):
    return " / ".join(f"{np.quantile(x, q):.1f}" for q in (0.5, 0.99, 1))


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("grammarbench")
    a.add_argument("tokenizer")
    a.add_argument("data")
    a.add_argument("--limit", type=int, default=200)
    a.add_argument("--rounds", type=int, default=3)
    a.add_argument("--seconds", type=float, default=float("inf"), help="begin no schema after these")
    a.add_argument("--llama", nargs=2, metavar=("SOURCES", "BUILD"))
    args = a.parse_args()
    path = os.path.join(args.tokenizer, "tokenizer.json")
    tok = tokenizers.Tokenizer.from_file(path)
    size = tok.get_vocab_size()
    engines = [Talf(args.grammarbench, args.tokenizer), LLGuidance(path, size), XGrammar(path, size)]
    if args.llama:
        whole = LlamaCpp(path, *args.llama, size)
        engines += [whole, LlamaCppDrawn(whole)]
    files = sorted(f for f in os.listdir(args.data) if f.endswith(".json"))
    step = max(1, len(files) // (2 * args.limit))
    best = {e.name: [[], [], []] for e in engines}
    fails = {e.name: 0 for e in engines}
    first = None
    used = 0
    until = time.monotonic() + args.seconds
    for f in files[::step]:
        if time.monotonic() > until:
            break
        with open(os.path.join(args.data, f), encoding="utf-8") as r:
            g = json.load(r)
        valid = [t["data"] for t in g.get("tests", []) if t["valid"]]
        if not valid or not isinstance(g["schema"], dict):
            continue
        ids = tok.encode(json.dumps(order(valid[0], g["schema"]), separators=(",", ":"), ensure_ascii=False), add_special_tokens=False).ids
        runs = {}
        for _ in range(args.rounds):
            for e in engines:
                if runs.get(e.name) == "failed":
                    continue
                try:
                    r = e.run(g["schema"], ids)
                except Exception:
                    runs[e.name] = "failed"
                    continue
                if e is engines[0] and first is None:
                    first = max(r[1])
                old = runs.get(e.name)
                runs[e.name] = r if old is None else (min(r[0], old[0]), np.minimum(r[1], old[1]), np.minimum(r[2], old[2]))
        for name, r in runs.items():
            fails[name] += r == "failed"
        if "failed" in runs.values():
            continue
        used += 1
        for name, r in runs.items():
            best[name][0].append(r[0])
            best[name][1].extend(r[1])
            best[name][2].extend(r[2])
        if used == args.limit:
            break
    if used == 0:
        sys.exit(f"no schema was compiled and allowed by all in time; failed: {fails}")
    print(f"{used} schemas, {len(best['talf'][1])} masks, {size} tokens, {args.rounds} rounds; failed: {fails}; the first mask of a string: {first:.0f} us")
    print("| | compile, ms: 50% / 99% / most | cold mask and token, µs | warm mask and token, µs |\n|---|---|---|---|")
    for e in engines:
        c, cold, warm = best[e.name]
        print(f"| {e.name} | {quantiles(np.array(c) / 1e3)} | {quantiles(cold)} | {quantiles(warm)} |")


if __name__ == "__main__":
    main()
