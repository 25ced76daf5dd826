// The page: what is asked, of whom, and where the answers go.

import { API, APIError } from "./api.js";
import { Pane } from "./pane.js";
import { Rounds } from "./rounds.js";
import { limits, parseRound, readTrace } from "./trace.js";

const $ = (id) => document.getElementById(id);
const api = new API();
const panes = [new Pane("A"), new Pane("B")];
const [a, b] = panes;
const parameters = $("parameters");
const settingsKey = "talf-playground";
const keyKey = "talf-key";

let running = null; // the AbortController of the answers in progress
let asking = Promise.resolve(); // ends with them
let messages = []; // of the conversation
const mostMessages = 200;
const saved = new Map(); // of panes: the header of the trace that can be saved

// touch is true without a mouse, and then most likely without a keyboard but that on the screen.
const touch = matchMedia("(hover: none) and (pointer: coarse)").matches;

const mode = () => document.querySelector("input[name=mode]:checked").value;

// Storage may be switched off; then nothing is remembered.
function stored(storage, name, value) {
  try {
    if (value === undefined) return window[storage].getItem(name);
    if (value === "") window[storage].removeItem(name);
    else window[storage].setItem(name, value);
  } catch {
    // as said
  }
  return null;
}

// ---- theme

const themes = ["", "light", "dark"];
const themeNames = { "": ["Auto", "as the system"], light: ["Light", "light"], dark: ["Dark", "dark"] };

function showTheme() {
  const [short, long] = themeNames[document.documentElement.dataset.theme ?? ""];
  $("theme").textContent = short;
  $("theme").setAttribute("aria-label", `Theme: ${long}`);
}

$("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const next = themes[(themes.indexOf(root.dataset.theme ?? "") + 1) % themes.length];
  if (next === "") delete root.dataset.theme;
  else root.dataset.theme = next;
  stored("localStorage", "talf-theme", next);
  showTheme();
});

// ---- key

function useKey(key) {
  api.key = key;
  $("unlock").classList.toggle("set", key !== "");
  $("unlock").setAttribute("aria-label", key === "" ? "API key: none" : "API key: set");
}

// askKey asks for a key, and says so if the server has refused the one that it was given.
function askKey(refused = false) {
  $("key-why").textContent = refused ? "The server refused this key." : "It stays in this tab and goes to this server only.";
  $("key-why").classList.toggle("error", refused);
  $("key").value = "";
  if (!$("key-dialog").open) $("key-dialog").showModal();
  $("key").focus();
}

$("unlock").addEventListener("click", () => askKey());
$("key-form").addEventListener("submit", (e) => {
  e.preventDefault();
  const key = $("key").value.trim();
  stored("sessionStorage", keyKey, key);
  useKey(key);
  $("key-dialog").close();
  connect();
});
$("key-forget").addEventListener("click", () => {
  stored("sessionStorage", keyKey, "");
  useKey("");
  $("key-dialog").close();
});

// ---- server

async function connect() {
  try {
    const [model] = await api.models();
    const context = model.max_model_len ? `, ${model.max_model_len.toLocaleString("en")} tokens` : "";
    $("model").textContent = `${model.id}${context}`;
    const methods = model.talf?.methods ?? [];
    const chosen = settings().methods ?? [];
    if (methods.length > 0) {
      a.offer(methods, chosen[0] ?? methods[0]);
      b.offer(methods, chosen[1] ?? "ar");
    }
  } catch (err) {
    const refused = api.key !== "";
    $("model").textContent = err.status !== 401 ? err.message : refused ? "the API key was refused" : "waiting for an API key";
    if (err.status === 401) askKey(refused);
  }
}

// ---- settings

function settings() {
  try {
    return JSON.parse(stored("localStorage", settingsKey)) ?? {};
  } catch {
    return {};
  }
}

function remember() {
  const fields = {};
  for (const f of parameters.elements) {
    if (f.name && f.name !== "system") fields[f.name] = f.type === "checkbox" ? f.checked : f.value;
  }
  stored("localStorage", settingsKey, JSON.stringify({
    fields, methods: panes.map((p) => p.method), compare: $("compare").checked, together: $("together").checked,
  }));
}

function restore() {
  const { fields = {}, compare = false, together = false } = settings();
  for (const f of parameters.elements) {
    if (!(f.name in fields)) continue;
    if (f.type === "checkbox") f.checked = fields[f.name] === true;
    else f.value = String(fields[f.name]);
  }
  $("compare").checked = compare === true;
  $("together").checked = together === true;
}

// body returns the request that all methods share.
function body(prompt) {
  const request = { stream_options: { include_usage: true } };
  for (const f of parameters.elements) {
    if (f.type !== "number" || f.value === "" || f.name === "nodes") continue;
    request[f.name] = f.valueAsNumber;
  }
  request.seed ??= crypto.getRandomValues(new Uint32Array(1))[0];
  const stop = parameters.elements.stop.value.split("\n").filter((s) => s !== "");
  if (stop.length > 0) request.stop = stop;
  if (parameters.elements.ignore_eos.checked) request.ignore_eos = true;
  if (mode() === "chat") {
    const system = parameters.elements.system.value.trim();
    request.messages = [...(system === "" ? [] : [{ role: "system", content: system }]), ...messages, { role: "user", content: prompt }];
  } else {
    request.prompt = prompt;
  }
  return request;
}

// ---- asking

const shown = () => (mode() !== "replay" && $("compare").checked ? panes : [a]);

function send() {
  const prompt = $("prompt").value;
  const chat = mode() === "chat";
  if (running || (chat && prompt.trim() === "")) return;
  if (!parameters.checkValidity()) {
    for (const e of document.querySelectorAll("#settings, #settings details")) e.open = true; // to show which
    parameters.reportValidity();
    return;
  }
  remember();
  asking = ask(prompt, chat);
}

// ask shows the answers to a prompt in the panes.
async function ask(prompt, chat) {
  const request = body(prompt);
  const asked = shown();
  const abort = new AbortController();
  running = abort;
  busy(true);
  $("verdict").hidden = true;
  for (const p of asked) {
    p.begin(prompt, chat ? "message" : "text");
    p.state("waiting");
    saved.delete(p);
  }
  if (chat) $("prompt").value = "";
  if (matchMedia("(max-width: 959px)").matches) a.root.scrollIntoView({ block: "start" });
  const together = $("together").checked;
  const ended = [];
  if (together) ended.push(...(await Promise.all(asked.map((p) => answer(p, request, abort.signal)))));
  else for (const p of asked) ended.push(await answer(p, request, abort.signal));
  running = null;
  busy(false);
  if (chat && a.transcript.text !== "") {
    messages.push({ role: "user", content: prompt }, { role: "assistant", content: a.transcript.text });
    messages = messages.slice(-mostMessages);
  } else if (chat && $("prompt").value === "") {
    $("prompt").value = prompt; // to be sent again
  }
  if (asked.length > 1 && ended.every((e) => e)) judge(together);
}

// answer asks for one answer and reports whether it is whole.
async function answer(pane, request, signal) {
  const path = request.messages ? "v1/chat/completions" : "v1/completions";
  const talf = { trace: true, ...(pane.method ? { method: pane.method } : {}) };
  const nodes = parameters.elements.nodes.valueAsNumber;
  if (nodes >= 1) talf.nodes = nodes;
  let first = NaN; // seconds
  let finish = "";
  let done = null;
  let prompt = 0;
  pane.state("reading the prompt");
  const take = (chunk) => {
    prompt = chunk.usage?.prompt_tokens ?? prompt;
    const choice = chunk.choices?.[0];
    if (!choice) return;
    if (choice.talf?.round) {
      if (Number.isNaN(first)) {
        first = Number(choice.talf.seconds);
        pane.state("writing");
      }
      pane.round(parseRound(choice.talf.round), choice.talf.number, choice.talf.seconds);
    } else if (choice.talf) {
      done = choice.talf;
    }
    const text = choice.delta?.content ?? choice.text;
    if (text) pane.write(text);
    finish = choice.finish_reason ?? finish;
  };
  const save = () => saved.set(pane, {
    talf_trace: 1, method: done?.method ?? pane.method, temperature: request.temperature ?? 1, seed: request.seed, prompt_tokens: prompt,
  });
  try {
    await api.stream(path, { ...request, talf }, signal, take, (read, of) => {
      pane.state(`reading the prompt: ${read.toLocaleString("en")} of ${of.toLocaleString("en")} tokens`);
    });
  } catch (err) {
    save();
    if (err.name === "AbortError") {
      pane.state("stopped");
      pane.end();
      return false;
    }
    pane.state("failed");
    pane.fail(err instanceof APIError ? err.message : `The answer cannot be shown: ${err.message}.`);
    if (err.status === 401) askKey(api.key !== "");
    return false;
  }
  save();
  const why = { stop: "ended by the model", length: "as long as asked for" }[finish] ?? finish;
  const wait = Number.isFinite(first) ? `; first token after ${first.toFixed(2)} s` : "";
  pane.state(`${why}${wait}; seed ${request.seed}`);
  const notes = [];
  if (done?.fallback) notes.push(`Some rounds had no draft: ${done.fallback}.`);
  if (done?.trace_dropped) notes.push(`${done.trace_dropped} rounds are not shown: this page read too slowly.`);
  pane.note(notes.join(" "));
  pane.end();
  $("live").textContent = `Answer ${pane.name} is complete: ${pane.rounds.tokens} tokens, ${pane.rounds.tau.toFixed(2)} a round.`;
  return true;
}

// judge compares two answers.
function judge(together) {
  const [x, y] = panes.map((p) => p.transcript.text);
  let at = 0;
  while (at < x.length && x[at] === y[at]) at++;
  const same = x === y && a.transcript.whole && b.transcript.whole;
  let text = same ? "The same text, character for character." : `The texts differ from character ${at + 1} on.`;
  const ratio = a.rounds.speed / b.rounds.speed;
  if (Number.isFinite(ratio) && ratio > 0 && !together) {
    const [fast, slow] = ratio >= 1 ? ["A", "B"] : ["B", "A"];
    text += ` ${fast} wrote ${Math.max(ratio, 1 / ratio).toFixed(2)} times as many tokens a second as ${slow} in this run.`;
  }
  $("verdict").textContent = text;
  $("verdict").classList.toggle("differs", !same);
  $("verdict").hidden = false;
}

function busy(on) {
  // The focus is not lost with the button that had it.
  const focused = document.activeElement;
  $("stop").disabled = false;
  if (on && focused === $("send")) $("stop").focus();
  if (!on && focused === $("stop") && !touch) $("prompt").focus();
  $("send").disabled = on;
  $("stop").disabled = !on;
  $("compare").disabled = on;
  for (const e of document.querySelectorAll("input[name=mode]")) e.disabled = on;
}

$("ask").addEventListener("submit", (e) => {
  e.preventDefault();
  send();
});
$("prompt").addEventListener("keydown", (e) => {
  if (touch || e.key !== "Enter" || e.shiftKey || e.isComposing) return; // a phone's keyboard has no other way to break the line
  e.preventDefault();
  send();
});
parameters.addEventListener("submit", (e) => {
  e.preventDefault();
  send();
});
$("stop").addEventListener("click", () => running?.abort());
document.addEventListener("keydown", (e) => {
  if (e.key === "Escape" && !$("key-dialog").open) running?.abort();
});
$("fresh").addEventListener("click", async () => {
  running?.abort();
  await asking; // until then the panes are its own
  messages = [];
  panes.forEach((p) => p.clear());
  $("verdict").hidden = true;
  $("prompt").focus();
});

// ---- replay

let reading = 0; // counts the files, so that a later one wins

async function replay(file) {
  const turn = ++reading;
  const fail = (message) => {
    $("replay-error").textContent = message;
    $("replay-error").hidden = message === "";
  };
  fail("");
  $("facts").hidden = true;
  a.clear();
  a.begin("", "text", new Rounds(limits.rounds, limits.nodes));
  a.state("reading the file");
  try {
    const { header, cut } = await readTrace(file, (round, number) => {
      if (turn !== reading) throw new Error("another file was chosen");
      a.round(round, number);
      a.spell(round);
    });
    if (turn !== reading) return;
    showFacts(header, file.name);
    a.label(header.method ? String(header.method) : "a trace");
    saved.set(a, header);
    a.end();
    a.pick(0);
    a.state(file.name);
    if (cut) a.note(`The file goes on: the first ${a.rounds.count} rounds are shown.`);
    else if (a.rounds.count === 0) a.note("The file has no rounds.");
  } catch (err) {
    if (turn !== reading) return;
    a.clear();
    fail(`${file.name}: ${err.message}.`);
  }
}

function showFacts(header, name) {
  const facts = [
    ["file", name], ["method", header.method], ["verified by", header.verify], ["temperature", header.temperature],
    ["seed", header.seed], ["tokens of the prompt", header.prompt_tokens],
  ];
  $("facts").replaceChildren(...facts.filter(([, x]) => x !== undefined && x !== null && x !== "").flatMap(([term, x]) => {
    const [dt, dd] = [document.createElement("dt"), document.createElement("dd")];
    dt.append(term);
    dd.append(String(x).slice(0, 200));
    return [dt, dd];
  }));
  $("facts").hidden = false;
}

$("file").addEventListener("change", () => {
  const [file] = $("file").files;
  if (file) replay(file);
});
for (const type of ["dragenter", "dragover", "dragleave", "drop"]) {
  document.addEventListener(type, (e) => {
    if (!e.dataTransfer?.types.includes("Files")) return;
    e.preventDefault(); // otherwise the browser leaves the page for the file
    $("drop").classList.toggle("over", type === "dragenter" || type === "dragover");
    const [file] = e.dataTransfer.files;
    if (type !== "drop" || !file || running) return;
    document.querySelector("input[name=mode][value=replay]").checked = true;
    arrange();
    replay(file);
  });
}

for (const p of panes) {
  p.onSave(() => {
    const lines = [saved.get(p) ?? { talf_trace: 1 }, ...p.rounds.list.map(({ round }) => round)].map((x) => `${JSON.stringify(x)}\n`);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob(lines, { type: "application/jsonl" }));
    link.download = "trace.jsonl";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  });
}

// ---- modes

function arrange() {
  const now = mode();
  const chat = now === "chat";
  document.body.dataset.mode = now;
  $("ask").hidden = now === "replay";
  $("settings").hidden = now === "replay";
  $("replay").hidden = now !== "replay";
  $("prompt-label").textContent = chat ? "Message" : "Prompt";
  $("send").textContent = chat ? "Send" : "Continue";
  $("system-row").hidden = !chat;
  $("together-row").hidden = !$("compare").checked;
  const two = shown().length > 1;
  b.root.hidden = !two;
  $("panes").classList.toggle("two", two);
  if (now !== "replay") a.label("");
}

for (const e of document.querySelectorAll("input[name=mode]")) {
  e.addEventListener("change", () => {
    reading++; // a file that is still being read has no pane any more
    panes.forEach((p) => p.clear());
    messages = [];
    $("verdict").hidden = true;
    $("facts").hidden = true;
    $("replay-error").hidden = true;
    $("file").value = "";
    arrange();
  });
}
$("compare").addEventListener("change", () => {
  $("verdict").hidden = true;
  b.clear();
  arrange();
  remember();
});
$("together").addEventListener("change", remember);

panes.forEach((p) => $("panes").append(p.root));
restore();
if (matchMedia("(max-width: 959px)").matches) $("settings").open = false;
showTheme();
useKey(stored("sessionStorage", keyKey) ?? "");
arrange();
$("hint").hidden = touch;
connect();
