#!/usr/bin/env python3
"""A mix of prompts to make a head with, for talf head --data: chat, code, maths, role play, summaries and questions.

usage: promptmix.py --gpteacher CLONE --self-instruct CLONE --gsm8k train.jsonl --talf answers.jsonl
                    --not FILE... --out FILE

CLONE are of github.com/teknium1/GPTeacher (MIT) and github.com/yizhongw/self-instruct (Apache-2.0), whose T0 folder has
articles and questions. answers.jsonl is what talf head wrote for its own prompts. Prompts of the files --not, which have
"turns", are left out: those that are measured.
"""
import argparse
import json
import random
import re
import subprocess

p = argparse.ArgumentParser(usage=__doc__)
for name in ("gpteacher", "self-instruct", "gsm8k", "talf", "out"):
    p.add_argument("--" + name, required=True)
p.add_argument("--not", nargs="*", default=[], dest="without")
a = p.parse_args()
rng = random.Random(5)


def show(clone, path):
    return subprocess.run(["git", "-C", clone, "show", "HEAD:" + path], capture_output=True, text=True, check=True).stdout


def names(clone, folder):
    tree = ["git", "-C", clone, "ls-tree", "-r", "--name-only", "HEAD", folder]
    return subprocess.run(tree, capture_output=True, text=True, check=True).stdout.split()


def task(d, given):
    return "\n\n".join(x for x in (d["instruction"].strip(), (given or "").strip()) if x)


def same(text):
    return re.sub(r"\W", "", text.lower())[:200]


lines = lambda text: [json.loads(x) for x in text.splitlines()]
teacher = lambda path: [task(d, d.get("input")) for d in json.loads(show(a.gpteacher, path))]
t0 = "data/finetuning/t0_train_50k/data_per_template/"
t0_prompts = lambda name: [d["prompt"].strip() for d in lines(show(a.self_instruct, name))]

news, questions = [], []
for name in names(a.self_instruct, t0):
    of = name.removeprefix(t0)
    if of.startswith("cnn_dailymail") and not re.search("generate_story|spice", of) or \
            of.startswith("xsum") and re.search("summar|tldr", of) or of.startswith("samsum_Su"):
        news += [x for x in t0_prompts(name) if len(x) < 2500]
    elif of.startswith("kilt_tasks_hotpotqa_straighforward"):
        questions += t0_prompts(name)
    elif of.startswith("trec_"):
        for x in t0_prompts(name):
            if m := re.search(r"(?m)^(?:Question: )?((?:What|Who|When|Where|How|Why|Which|In what)[^\n]*\?)", x):
                questions.append(m[1].replace(" ?", "?").replace(" 's", "'s"))
questions = [q for q in questions if not re.search("sentence|category|ask", q)]
tasks = []
for path in ("data/seed_tasks.jsonl", "human_eval/user_oriented_instructions.jsonl"):
    tasks += [task(d, d["instances"][0].get("input")) for d in lines(show(a.self_instruct, path))]

measured = {same(x) for f in a.without for d in lines(open(f).read()) for x in d["turns"]}


def draw(prompts, n):
    prompts = [x for x in dict.fromkeys(prompts) if same(x) not in measured and len(x) < 3000]
    rng.shuffle(prompts)
    return prompts[:n]


mix = draw([d["prompt"] for d in lines(open(a.talf).read())], 1200)
mix += draw(teacher("Codegen/codegen-instruct.json"), 900)
mix += draw(teacher("Roleplay/roleplay-simple-deduped-roleplay-instruct.json"), 400)
mix += draw([d["question"] for d in lines(open(a.gsm8k).read())], 800)
mix += draw(tasks, 427) + draw(news, 400) + draw(questions, 700)
rng.shuffle(mix)
with open(a.out, "w") as f:
    for x in mix:
        f.write(json.dumps({"prompt": x}) + "\n")
print(f"{len(mix)} prompts")
