"""Ids of invented texts by llama.cpp: gguf/ids.

    python3 tools/goldens/ids.py --llama-ids PROGRAM [--models DIR] [--out DIR]

PROGRAM is llama_ids.cpp, built against llama.cpp. DIR has the real models of
internal/zoo; without it their ids are left as they are. `splits.json` has the
ids under every way to split texts that tokenizer.ggml.pre can name, over a
vocabulary that shows the cuts: `same` has for each name one with the same ids,
`bos` those with a token before texts. `NAME.json` has those of a real model.
"""

import argparse
import gzip
import json
import pathlib
import random
import struct
import subprocess
import tempfile

HOME = pathlib.Path(__file__).resolve().parents[2]
GOLDENS = HOME / "internal" / "golden" / "testdata" / "gguf"

# All names that llama.cpp knows, but for those of model/gguf's rawNames.
NAMES = """llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano glm4 glm5 smaug-bpe dbrx chatglm-bpe minicpm5 jais-2
qwen2 deepseek-r1-qwen megrez kormo f2llmv2 stablelm2 hunyuan solar-open grok-2 qwen35 laguna ufakzeka bailingmoe bailingmoe2 llada-moe
seed-coder exaone-moe gpt-2 phi-2 olmo mpt jais trillion gigachat mellum exaone4 a.x-4.0 granite-docling modern-bert roberta-bpe
jina-es jina-de jina-v1-en jina-v2-es jina-v2-de jina-v2-code smollm starcoder refact command-r codeshell exaone minerva-7b mellum2
falcon default chameleon bloom gpt3-finnish poro-chat viking superbpe tekken gpt-4o llama4 kanana2 talkie minimax-m2
granite-embed-multi-97m tiny_aya cohere2moe youtu kimi-k2 deepseek-llm deepseek-coder deepseek-v3 hunyuan-dense joyai-llm hy_v4
spark2_5 afmoe""".split()

MODELS = {
    "smollm2": "SmolLM2-135M-Instruct-Q4_1.gguf",
    "gemma3": "gemma-3-270m-Q4_K_M.gguf",
    "qwen05": "Qwen2.5-Coder-0.5B-Instruct-Q4_K_M.gguf",  # qwen15 has the same tokenizer
}

WORDS = {
    "latin": "river Stone WINTER candle HelloWorld parseJSONFile getHTTPResponse2xx naïve façade Straße Ærø Çelik İstanbul ąęłż",
    "greek": "ποτάμι Πέτρα ΧΕΙΜΩΝΑΣ φως",
    "cyrillic": "река Камень ЗИМА свеча ёлка",
    "han": "河流 石头 冬天的蜡烛 東京都",
    "kana": "かわ イシ ふゆのロウソク ｶﾀｶﾅ",
    "hangul": "강물 돌멩이 겨울 촛불",
    "arabic": "نهر حجر شتاء، شمعة؟ اور۔",
    "hebrew": "נהר אבן חורף נר",
    "devanagari": "नदी पत्थर सर्दी मोमबत्ती।",
    "thai": "แม่น้ำ หิน ฤดูหนาว เทียน",
    "tamil": "ஆறு கல் குளிர்காலம்",
    "bengali": "নদী পাথর শীতকাল",
    "khmer": "ទន្លេ ថ្ម រដូវរងា",
    "burmese": "မြစ် ကျောက် ဆောင်း",
    "georgian": "მდინარე ქვა ზამთარი",
    "armenian": "գետ Քար ՁՄԵՌ",
    "ethiopic": "ወንዝ ድንጋይ ክረምት",
    "vietnamese": "dòng sông hòn đá mùa đông",
    "cherokee": "ᎤᏪᏴ ᏅᏯ ꮕꮿ",
    "deseret": "𐐢𐐮𐑊𐑌 𐐝𐐻𐐬𐑌",
    "mathematical": "𝐑𝐢𝐯𝐞𝐫 𝒔𝒕𝒐𝒏𝒆 𝟙𝟚𝟛",
    "bopomofo": "ㄏㄜˊ ㄕˊ",
    "yi": "ꀀꀁ ꒰",
}

MARKS = [" ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", " \n ", "\u00a0", "\u3000", "\u200b", "\u2028", "\x0b", "\x85", ", ", ". ", "! ", "?", "…", "—",
         "(", ")", "[", "]", "{", "}", "<", ">", "/", "\\", "|", "`", "~", "^", "$", "€", "+", "=", "_", "-", "--", "'", "’", "\"", "“", "”", "@", "#",
         "%", "&", "*", ";", ":", "。", "，", "、", "！", "「", "」", "·", "×", "°", "½", "²", "№", "™", "🙂", "👩🏽‍🚀", "🇦🇺", "❤️", "\u0301", "\ufffd", "\ue000"]

SPECIAL = """<s> </s> <unk> <pad> <bos> <eos> <mask> <|endoftext|> <|im_start|> <|im_end|> <|eot_id|> <|eom_id|> <|end|> <end_of_turn>
<start_of_turn> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|fim_pad|> <|repo_name|> <|file_sep|> <reponame> <filename> <tool_call>
</tool_call> <h1> </h1> <table> [multimodal] <start_of_image> <unused7> <0x0A> <0xE2> ▁ ▁▁ ▁river [PAD] [INST] [PAD151665]
<sentinel:12> IMGIMGABCZ""".split()

CODE = [
    "def area(r):\n    return 3.14159 * r ** 2  # square metres\n",
    "for (int i = 0; i < n; ++i) {\n\tsum += a[i] << 2;\n}\n",
    "func Max(a, b int) int {\n\tif a > b {\n\t\treturn a\n\t}\n\treturn b\n}",
    "SELECT name, COUNT(*) FROM boats WHERE length_m >= 12.5 GROUP BY name;",
    "<ul>\n  <li class=\"item\">One &amp; two</li>\n</ul>",
    "{\"id\": 17, \"tags\": [\"a\", \"b\"], \"ok\": true, \"x\": null}",
    "$ grep -rn 'TODO' ./src | wc -l && echo \"done: $?\"",
    "\\begin{equation} e^{i\\pi} + 1 = 0 \\end{equation}",
    "let mut v: Vec<u8> = vec![0; 1_024]; v[0] ^= 0xFF;",
    "|a|b|\n|---|---|\n|1|2|\n\n* item\n    * nested\n",
    "https://example.org/a/b?q=1&r=%20x#top user.name@example.org",
]

PLAIN = [
    "", " ", "a", "A", "0", "\n", "\t", " a", "a ", "  a  ", "a\n", "\na", "a\n\n\nb", "a \n \n b", "\r\n\r\n", "a\r\nb\rc", " \t \t x", "x" + " " * 40 + "y",
    "\n" * 40, "\t" * 35 + "end", " " * 70, "a" * 70, "na" * 30, "=" * 50, "-" * 33, "#" * 9 + " title", "....", "?!?!", "!!!\n\n", "...\n/path",
    "I'm sure they've said it's what we'd do, isn't it? You'LL SEE, WE'RE HERE.", "the dogs' bowl, rock'n'roll, 'tis, O'Neil's, l'été, d’accord, she’s",
    "'s 't 're 've 'm 'll 'd 'S 'T 'RE", "Ankara'dan 'to it'serin 're'dir x'Tx 'veya I'Mx", "1 12 123 1234 12345 123456 1234567 1234567890123", "3.14159, -2,718.28 and 1e-9", "٠١٢٣٤٥ १२३४ ๑๒๓ ４５６ ⅫⅣ ½¾ ²³",
    "2024-07-26T12:34:56Z 192.168.0.1 0x1F 1_000", "007 0000 00000", "a1b22c333d4444e", "v2.0.1-rc3", "$9.99 €1.234,56 ¥500",
    "Cafe\u0301 e\u0301\u0302 a\u030a", "क्षि কি กำ", "\u1100\u1161\u11a8", "ﬁ ﬂ ﷺ", "ǅ ǈ ʰ ª", "a\u200db\u200cc\ufeffd", "x\u0000y", "\ufeffstart",
]


def texts() -> list[str]:
    r = random.Random(33)
    all_words = [w for line in WORDS.values() for w in line.split()]
    out = PLAIN + CODE + SPECIAL + list(WORDS.values())
    out += [f"{a} {s}{b}" for s, a, b in zip(SPECIAL, all_words, all_words[3:])]
    out += [f"<|im_start|>user\n{w}?<|im_end|>\n<|im_start|>assistant\n" for w in all_words[:4]]
    out += [f"<start_of_turn>user\n{w}<end_of_turn>\n<start_of_turn>model\n" for w in all_words[4:8]]
    while len(out) < 330:  # sentences that mix all of it
        parts = []
        for _ in range(r.randint(3, 24)):
            kind = r.random()
            if kind < 0.45:
                parts.append(r.choice(all_words))
            elif kind < 0.8:
                parts.append(r.choice(MARKS))
            elif kind < 0.9:
                parts.append(str(r.randrange(10 ** r.randint(1, 12))))
            elif kind < 0.95:
                parts.append(r.choice(["'s", "'T", "'re", "'LL", "’ve"]))
            else:
                parts.append(" ")
        out.append("".join(parts))
    return list(dict.fromkeys(out))


def pairs() -> list[tuple[int, int]]:
    """Bytes that merge: what is cut apart is not one token."""
    plain = [9, 10, 13, *range(32, 127)]
    high = range(128, 256)
    return [(a, b) for a in range(256) for b in range(256)
            if a in plain and b in plain or a in high and b in high and (a + b) % 4 == 0 or a == 32 and b in high or a in high and b in (10, 39)]


def vocabulary() -> bytes:
    """A GGUF file of bytes, pairs of bytes, some words that nothing merges to, and <s>."""
    shown, n = {}, 256  # the byte-level alphabet
    for b in range(256):
        printable = 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b
        shown[b] = chr(b if printable else n)
        n += not printable
    tokens = [shown[b] for b in range(256)] + [shown[a] + shown[b] for a, b in pairs()] + ["Ġriver", "WINTER", "ĠStone", "candle", "12345", "<s>"]
    merges = [shown[a] + " " + shown[b] for a, b in pairs()]
    text = lambda s: struct.pack("<Q", len(s.encode())) + s.encode()
    texts = lambda v: struct.pack("<IIQ", 9, 8, len(v)) + b"".join(map(text, v))
    keys = {
        "general.architecture": struct.pack("<I", 8) + text("llama"),
        "tokenizer.ggml.model": struct.pack("<I", 8) + text("gpt2"),
        "tokenizer.ggml.pre": struct.pack("<I", 8) + text("default"),
        "tokenizer.ggml.tokens": texts(tokens),
        "tokenizer.ggml.merges": texts(merges),
        "tokenizer.ggml.token_type": struct.pack(f"<IIQ{len(tokens)}i", 9, 5, len(tokens), *[1] * (len(tokens) - 1), 3),
        "tokenizer.ggml.bos_token_id": struct.pack("<II", 4, len(tokens) - 1),
    }
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(keys)) + b"".join(text(k) + v for k, v in keys.items())


def ids(program: str, model: pathlib.Path, of: list[str], pre: str = "") -> tuple[list[int], bool, list[list[int]]]:
    raw = [t.encode() for t in of]
    stdin = b"".join(b"%d\n%s" % (len(b), b) for b in raw)
    done = subprocess.run([program, str(model), *([pre] if pre else [])], input=stdin, stdout=subprocess.PIPE, check=True)
    ends, bos, *lines = [json.loads(line) for line in done.stdout.splitlines()]
    if len(lines) != len(of):
        raise SystemExit(f"{model}: {len(lines)} of {len(of)} texts")
    return ends, bos, lines


def rows(d: dict) -> str:
    """JSON with a line for each entry of a list or a dictionary."""
    one = lambda v: json.dumps(v, ensure_ascii=False, separators=(",", ":"))
    parts = []
    for k, v in d.items():
        if isinstance(v, dict):
            inner = ",\n".join(f"{one(x)}:{one(y)}" for x, y in v.items())
            parts.append(f"{one(k)}:{{\n{inner}\n}}")
        else:
            inner = ",\n".join(one(x) for x in v)
            parts.append(f"{one(k)}:[\n{inner}\n]")
    return "{" + ",\n".join(parts) + "}\n"


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("--llama-ids", required=True)
    p.add_argument("--models", type=pathlib.Path)
    p.add_argument("--out", type=pathlib.Path)
    o = p.parse_args()
    made = {}
    all_texts = texts()
    with tempfile.TemporaryDirectory() as tmp:
        model = pathlib.Path(tmp) / "vocabulary.gguf"
        model.write_bytes(vocabulary())
        short = [t for t in all_texts if len(t) < 90][::2] + PLAIN
        short = list(dict.fromkeys(short))
        same, bos, different = {}, [], {}
        for name in NAMES:
            _, first, lines = ids(o.llama_ids, model, short, name)
            bos += [name] if first else []
            same[name] = next((k for k, v in different.items() if v == lines), name)
            different[same[name]] = lines
        made["splits"] = {"texts": short, "same": same, "bos": bos, "ids": different}
    for name, file in MODELS.items() if o.models else []:
        ends, _, lines = ids(o.llama_ids, o.models / file, all_texts)
        made[name] = {"ends": ends, "texts": all_texts, "ids": lines}
    for name, d in made.items():
        if o.out:
            target = o.out / "gguf" / "ids" / f"{name}.json"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(rows(d))
            continue
        stored = GOLDENS / "ids" / f"{name}.json.gz"
        print(name, "equal" if gzip.decompress(stored.read_bytes()).decode() == rows(d) else "differs")


if __name__ == "__main__":
    main()
