// The rounds of one answer, and what they add up to. Sums are over all rounds; of the rounds
// themselves only so many are kept, the newest.

import { accepted } from "./trace.js";

export class Rounds {
  #most;
  #mostNodes;
  #nodes = 0;

  constructor(most = 4096, mostNodes = 1 << 18) {
    this.#most = most;
    this.#mostNodes = mostNodes;
    this.list = []; // { number, round }
    this.count = 0;
    this.tokens = 0;
    this.drafted = 0;
    this.accepted = 0;
    this.forgotten = 0; // rounds that were kept once
    this.depths = []; // [d-1]: { tried, kept }
    this.began = NaN; // seconds of the first round
    this.ended = NaN; // of the last one
    this.first = 0; // tokens of the first round
  }

  // add takes a round, with its time in seconds by the server's clock; NaN is unknown.
  add(round, number, at) {
    this.list.push({ number, round });
    this.#nodes += round.nodes.length;
    while (this.list.length > 1 && (this.list.length > this.#most || this.#nodes > this.#mostNodes)) {
      this.#nodes -= this.list.shift().round.nodes.length;
      this.forgotten++;
    }
    if (this.count === 0) {
      this.began = at;
      this.first = round.kept;
    }
    this.ended = at;
    this.count++;
    this.tokens += round.kept;
    this.drafted += round.nodes.length - 1;
    this.accepted += accepted(round);
    this.#compare(round);
  }

  // compare counts by depth where the path found children, and where it went on to one.
  #compare(round) {
    const parents = new Set();
    for (const n of round.nodes.slice(1, round.live)) parents.add(n.parent);
    for (let i = 0; i < round.kept; i++) {
      if (!parents.has(round.path[i])) continue;
      const depth = (this.depths[i] ??= { tried: 0, kept: 0 });
      depth.tried++;
      if (i + 1 < round.path.length) depth.kept++;
    }
  }

  // tau is the mean number of tokens of a round, NaN before the first.
  get tau() {
    return this.tokens / this.count;
  }

  // speed is in tokens a second, from the first round on; NaN while that is unknown.
  get speed() {
    return this.ended > this.began ? (this.tokens - this.first) / (this.ended - this.began) : NaN;
  }

  // interesting is the index of the newest round that accepted a draft, or of the last.
  get interesting() {
    const i = this.list.findLastIndex(({ round }) => round.path.length > 1);
    return i < 0 ? this.list.length - 1 : i;
  }
}
