// The text of an answer, in which each round's part can be told from the others.
//
// The text is what the API sent. The rounds, which come before it, say which token it was drafted
// as; where the tokens do not spell the text, as with characters of several tokens, it stays
// without that.

import { emitted } from "./trace.js";

// mostShown bounds the characters of the page, mostKept those that are kept for comparison.
const mostShown = 200000;
const mostKept = 4 << 20;
const mostPart = 4096; // characters of one element, so that they can be let go
const farthest = 64; // characters that are skipped to find the next token

export class Transcript {
  #root;
  #queue = []; // tokens that no text came for yet
  #spans = []; // in order; .round is their number
  #shown = 0;
  #current = Infinity;
  #marked = 0; // the first of #spans that are later than #current

  // pick is called with the number of a round whose text is clicked.
  constructor(root, pick) {
    this.#root = root;
    this.text = "";
    this.whole = true; // text is all of it
    root.addEventListener("click", (e) => {
      const part = e.target.closest("[data-round]");
      if (part && getSelection().isCollapsed) pick(Number(part.dataset.round));
    });
  }

  // round announces the tokens of a round.
  round(number, round) {
    for (const t of emitted(round)) this.#queue.push({ text: t.text, drafted: t.drafted, round: number });
    if (this.#queue.length > 65536) this.#queue = []; // no text comes
  }

  // write appends text.
  write(text) {
    if (this.text.length + text.length <= mostKept) this.text += text;
    else this.whole = false;
    while (text !== "" && this.#queue.length > 0) {
      const t = this.#queue[0];
      if (this.#spans.length === 0 && /^\S/.test(text)) t.text = t.text.trimStart(); // SentencePiece drops the first space
      if (t.text !== "" && text.startsWith(t.text)) {
        this.#append(t.text, t);
        text = text.slice(t.text.length);
        this.#queue.shift();
      } else if (t.text !== "" && t.text.startsWith(text)) { // the rest is held back by the server
        this.#append(text, t);
        t.text = t.text.slice(text.length);
        return;
      } else {
        const [tokens, skip] = this.#resume(text);
        if (tokens < 0) {
          // None of these tokens is here to be seen; all are of the newest round.
          this.#append(text, { drafted: false, round: this.#queue.at(-1).round });
          this.#queue = [];
          return;
        }
        this.#append(text.slice(0, skip), { drafted: t.drafted, round: t.round });
        text = text.slice(skip);
        this.#queue.splice(0, tokens);
      }
    }
    if (text !== "") this.#append(text, { drafted: false, round: this.#spans.at(-1)?.round ?? 0 });
  }

  // resume looks for the next token that is in the text as it is, and where: at once, if tokens
  // before it have no text, or further on behind parts of characters.
  #resume(text) {
    const near = text.slice(0, farthest);
    let parts = true;
    for (let i = 1; i < this.#queue.length && i <= farthest; i++) {
      parts &&= this.#queue[i - 1].text.includes("\ufffd");
      const t = this.#queue[i].text;
      if (t === "" || t.includes("\ufffd")) continue;
      const at = parts ? near.indexOf(t) : near.startsWith(t) ? 0 : -1;
      if (at >= 0) return [i, at];
    }
    return [-1, 0];
  }

  #append(text, { drafted, round }) {
    if (text === "") return;
    const kind = drafted ? "drafted" : "own";
    const last = this.#spans.at(-1);
    this.#shown += text.length;
    if (last?.round === round && last.kind === kind && last.e.firstChild.length < mostPart) {
      last.e.firstChild.appendData(text);
    } else {
      const e = document.createElement("span");
      e.className = kind;
      e.dataset.round = round;
      e.append(text);
      e.classList.toggle("later", round > this.#current);
      this.#spans.push({ e, round, kind });
      this.#root.append(e);
    }
    while (this.#shown > mostShown && this.#spans.length > 1) {
      const { e } = this.#spans.shift();
      this.#shown -= e.textContent.length;
      e.remove();
      this.#marked = Math.max(0, this.#marked - 1);
      this.#root.classList.add("cut");
    }
  }

  // show frames the text of a round, 0 is none, and dims what is later unless whole.
  show(round, whole) {
    const number = whole ? Infinity : round;
    this.#current = number;
    let i = Math.min(this.#marked, this.#spans.length);
    while (i > 0 && this.#spans[i - 1].round > number) this.#spans[--i].e.classList.add("later");
    while (i < this.#spans.length && this.#spans[i].round <= number) this.#spans[i++].e.classList.remove("later");
    this.#marked = i;
    this.#root.querySelectorAll(".now").forEach((e) => e.classList.remove("now"));
    if (round > 0) this.#root.querySelectorAll(`[data-round="${round}"]`).forEach((e) => e.classList.add("now"));
  }
}
