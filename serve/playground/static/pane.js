// A pane shows one answer: its text, the tree of a round, and what the rounds add up to.

import { Rounds } from "./rounds.js";
import { caption, describe, draw, example, percent, visible } from "./tree.js";
import { emitted } from "./trace.js";
import { Transcript } from "./transcript.js";

const mostBars = 240; // of the timeline; more rounds share them
const fewest = 24; // rounds that the timeline has room for
const mostTurns = 100; // of a conversation
const stepTime = 400; // milliseconds that a round is shown when they are played

const number = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });
const count = (n, what) => `${number.format(n)} ${what}${n === 1 ? "" : "s"}`;

export class Pane {
  #ui = {};
  #rounds = new Rounds();
  #transcript = null;
  #at = -1; // index of the round that is shown in #rounds.list
  #follow = true; // the newest round is shown, and then the whole text
  #bottom = true; // the text is scrolled to its end, and stays there
  #aside = false; // some nodes were only scored
  #dirty = false;
  #drawn = null;
  #timer = 0;

  constructor(name) {
    const root = document.getElementById("pane").content.firstElementChild.cloneNode(true);
    for (const e of root.querySelectorAll("[data-ui]")) this.#ui[e.dataset.ui] = e;
    this.root = root;
    this.name = name;
    root.dataset.pane = name;
    const ui = this.#ui;
    ui.mark.textContent = name;
    root.setAttribute("aria-label", `Answer ${name}`);
    ui.method.setAttribute("aria-label", `Draft method of answer ${name}`);
    ui.range.setAttribute("aria-label", `Round of answer ${name}`);
    ui.thread.addEventListener("scroll", () => {
      this.#bottom = ui.thread.scrollHeight - ui.thread.scrollTop - ui.thread.clientHeight < 40;
    });
    draw(ui.example, example, "An example");
    ui.range.addEventListener("input", () => this.pick(Number(ui.range.value)));
    ui.back.addEventListener("click", () => this.pick(this.#at - 1));
    ui.on.addEventListener("click", () => this.pick(this.#at + 1));
    ui.play.addEventListener("click", () => this.play(this.#timer === 0));
    ui.nodes.addEventListener("toggle", () => this.#table());
  }

  get method() {
    return this.#ui.method.value;
  }

  get #busy() {
    return this.root.hasAttribute("aria-busy");
  }

  get rounds() {
    return this.#rounds;
  }

  get transcript() {
    return this.#transcript;
  }

  // offer fills the list of methods and chooses one.
  offer(methods, chosen) {
    this.#ui.method.replaceChildren(...methods.map((m) => new Option(m === "ar" ? "ar (plain decoding)" : m, m)));
    this.#ui.method.value = methods.includes(chosen) ? chosen : methods[0];
    this.#ui.method.hidden = !this.#ui.label.hidden;
  }

  // label shows what is replayed in place of the methods, or the methods again for "".
  label(text) {
    this.#ui.label.textContent = text;
    this.#ui.label.hidden = text === "";
    this.#ui.method.hidden = text !== "" || this.#ui.method.options.length === 0;
  }

  // clear empties the pane.
  clear() {
    this.play(false);
    this.#ui.thread.replaceChildren();
    this.#transcript = null;
    this.#reset();
    this.root.classList.add("empty");
    this.state("");
  }

  #reset() {
    this.#rounds = new Rounds();
    this.#at = -1;
    this.#follow = true;
    this.#aside = false;
    this.#drawn = null;
    this.note("");
    this.#ui.save.disabled = true;
    this.#ui.tree.replaceChildren();
    this.#paint();
  }

  // begin starts an answer. given is what comes before it; as says how: "message" or "text". most,
  // if given, are the rounds to be kept.
  begin(given, as, rounds) {
    this.play(false);
    this.root.classList.remove("empty", "failed");
    this.#reset();
    if (rounds) this.#rounds = rounds;
    const turn = document.createElement("div");
    turn.className = `turn ${as}`;
    if (as === "message" && given !== "") {
      const said = document.createElement("p");
      said.className = "said";
      said.append(given);
      turn.append(said);
    }
    const answer = document.createElement("div");
    answer.className = "answer";
    if (as === "text" && given !== "") {
      const prompt = document.createElement("span");
      prompt.className = "given";
      prompt.append(given);
      answer.append(prompt);
    }
    const text = document.createElement("span");
    text.className = "text";
    answer.append(text);
    turn.append(answer);
    if (as !== "message") this.#ui.thread.replaceChildren();
    while (this.#ui.thread.childElementCount >= mostTurns) this.#ui.thread.firstElementChild.remove();
    this.#ui.thread.append(turn);
    // Rounds of earlier answers are gone: their text is text alone.
    this.#ui.thread.querySelectorAll("[data-round]").forEach((e) => e.replaceWith(...e.childNodes));
    this.#transcript = new Transcript(text, (n) => this.#pickNumber(n));
    this.root.setAttribute("aria-busy", "true");
    this.#later();
  }

  // write appends text of the answer.
  write(text) {
    this.#transcript.write(text);
    this.#later();
  }

  // round takes the next round, at its time in seconds by the server's clock.
  round(round, number, at = NaN) {
    const forgotten = this.#rounds.forgotten;
    this.#rounds.add(round, number, at);
    this.#aside ||= round.live < round.nodes.length;
    this.#transcript.round(number, round);
    if (!this.#follow) this.#at = Math.max(0, this.#at - (this.#rounds.forgotten - forgotten));
    this.#later();
  }

  // spell writes the text of a round's tokens, for want of the answer itself.
  spell(round) {
    this.write(emitted(round).map((t) => t.text).join(""));
  }

  // end says that nothing more comes.
  end() {
    this.root.removeAttribute("aria-busy");
    if (this.#follow) this.#at = this.#rounds.interesting; // the last round often has no draft
    const { count, forgotten, list } = this.#rounds;
    this.#ui.save.disabled = count === 0;
    this.#ui.save.textContent = forgotten > 0 ? `Save the last ${number.format(list.length)} rounds` : "Save trace";
    this.#later();
  }

  // fail shows why there is no more.
  fail(message) {
    this.root.classList.add("failed");
    this.note(message);
    this.end();
  }

  state(text) {
    this.#ui.state.textContent = text;
  }

  note(text) {
    this.#ui.note.textContent = text;
    this.#ui.note.hidden = text === "";
  }

  onSave(save) {
    this.#ui.save.addEventListener("click", save);
  }

  // pick shows a round by its index. Beyond the last one the newest is followed.
  pick(index) {
    const last = this.#rounds.list.length - 1;
    if (last < 0) return;
    this.#at = Math.max(0, Math.min(index, last));
    this.#follow = index >= last && this.#busy;
    if (index >= last) this.play(false);
    this.#later();
  }

  #pickNumber(number) {
    const i = this.#rounds.list.findIndex((r) => r.number === number);
    if (i >= 0) this.pick(i);
  }

  // play shows round after round, from the first if the last is shown.
  play(on) {
    clearInterval(this.#timer);
    this.#timer = 0;
    this.#ui.play.setAttribute("aria-pressed", String(on));
    if (!on || this.#rounds.list.length < 2) return this.#ui.play.setAttribute("aria-pressed", "false");
    if (this.#at >= this.#rounds.list.length - 1) this.pick(0);
    this.#timer = setInterval(() => this.pick(this.#at + 1), stepTime);
  }

  // later paints once before the next frame, however much came until then.
  #later() {
    if (this.#dirty) return;
    this.#dirty = true;
    requestAnimationFrame(() => {
      this.#dirty = false;
      this.#paint();
    });
  }

  #paint() {
    const ui = this.#ui;
    const { list } = this.#rounds;
    const thread = ui.thread;
    if (this.#follow && this.#busy) {
      this.#at = list.length - 1;
    }
    if (this.#bottom && this.#busy) thread.scrollTop = thread.scrollHeight;
    this.#figures();
    ui.rounds.hidden = list.length === 0;
    if (list.length === 0) return;
    const shown = list[this.#at];
    ui.range.max = list.length - 1;
    ui.range.value = this.#at;
    const of = list.at(-1).number;
    ui.range.setAttribute("aria-valuetext", `round ${shown.number} of ${of}: ${caption(shown.round)}`);
    ui.place.textContent = `Round ${number.format(shown.number)} of ${number.format(of)}`;
    ui.back.disabled = this.#at === 0;
    ui.on.disabled = this.#at === list.length - 1;
    ui.play.disabled = list.length < 2;
    this.#timeline();
    this.#transcript.show(this.#busy && this.#follow ? 0 : shown.number, this.#follow);
    ui.aside.hidden = !this.#aside;
    if (this.#drawn === shown) return;
    this.#drawn = shown;
    draw(ui.tree, shown.round, `Round ${shown.number}`);
    ui.caption.textContent = caption(shown.round);
    ui.scroll.scrollTo(0, 0); // where the path is
    this.#table();
  }

  #figures() {
    const ui = this.#ui;
    const r = this.#rounds;
    const put = (e, x, digits) => (e.textContent = Number.isFinite(x) && r.count > 0 ? x.toFixed(digits) : "–");
    put(ui.tau, r.tau, 2);
    put(ui.speed, r.speed, r.speed < 100 ? 1 : 0);
    ui.tokens.textContent = r.count > 0 ? number.format(r.tokens) : "–";
    ui.passes.textContent = r.count > 0 ? `in ${count(r.count, "round")}` : "";
    put(ui.drafted, r.drafted / r.count, 1);
    ui.accepted.textContent = r.drafted > 0 ? `, ${number.format(r.accepted)} of ${number.format(r.drafted)} accepted` : "";
    ui.depths.hidden = r.depths.length === 0;
    ui.bars.replaceChildren(...r.depths.map(({ tried, kept }, i) => {
      const li = document.createElement("li");
      const share = tried > 0 ? kept / tried : 0;
      const [depth, bar, value] = ["depth", "bar", "value"].map((name) => {
        const e = document.createElement("span");
        e.className = name;
        return e;
      });
      depth.append(String(i + 1));
      bar.style.setProperty("--share", share);
      value.append(`${percent(share)} `);
      const of = document.createElement("small");
      of.append(`${number.format(kept)} of ${number.format(tried)}`);
      value.append(of);
      li.append(depth, bar, value);
      return li;
    }));
  }

  // timeline draws a bar for each round, as high as its tokens.
  #timeline() {
    const { list } = this.#rounds;
    const share = Math.ceil(list.length / mostBars);
    const bars = Math.ceil(list.length / share);
    let most = 2;
    const heights = [];
    for (let i = 0; i < bars; i++) {
      let kept = 0;
      let n = 0;
      for (const { round } of list.slice(i * share, (i + 1) * share)) {
        kept += round.kept;
        n++;
      }
      heights.push(kept / n);
      most = Math.max(most, kept / n);
    }
    const space = 0.2;
    const bar = (i, from, to) => `M${(i + space / 2).toFixed(2)} ${(40 - from).toFixed(2)}h${1 - space}V${(40 - to).toFixed(2)}h${space - 1}z`;
    const unit = 38 / most;
    let own = "";
    let drafted = "";
    heights.forEach((h, i) => {
      own += bar(i, 0, Math.min(1, h) * unit);
      if (h > 1) drafted += bar(i, unit, h * unit);
    });
    const ui = this.#ui;
    // A few rounds don't fill the width. The slider is as wide as the bars, and stands below the middle of each.
    const slots = Math.max(list.length, fewest);
    ui.timeline.setAttribute("viewBox", `0 0 ${slots / share} 40`);
    ui.range.style.setProperty("--slots", slots);
    ui.range.style.setProperty("--rounds", list.length);
    ui.ownBars.setAttribute("d", own);
    ui.draftedBars.setAttribute("d", drafted);
    ui.cursor.setAttribute("x", Math.floor(this.#at / share));
  }

  // table lists the nodes of the round, for those who cannot see the drawing.
  #table() {
    const { nodes, rows } = this.#ui;
    if (!nodes.open || !this.#drawn) return;
    rows.replaceChildren(...describe(this.#drawn.round).map((n) => {
      const row = document.createElement("tr");
      row.className = n.fate;
      const cells = [visible(n), n.depth, n.q === undefined ? "" : percent(n.q), n.rare ? "<2%" : n.p === undefined ? "" : percent(n.p), n.says];
      for (const x of cells) row.insertCell().append(String(x));
      return row;
    }));
  }
}
