// Rounds of decoding in the format of talf's trace files: a line of JSON for each, after a header.
// The "round" of a streamed chunk is such a line. They are checked field by field, because a file
// may come from anybody.

const version = 1;
const mostNodes = 1024; // of a tree
const mostText = 256; // characters of a token; longer ones are cut

// limits of a file: what is beyond them is not read.
export const limits = { bytes: 256 << 20, line: 16 << 20, rounds: 20000, nodes: 1 << 19 };

const isCount = (x) => Number.isSafeInteger(x) && x >= 0;
const isProbability = (x) => x === undefined || x === null || (typeof x === "number" && x >= 0 && x <= 1.001);

function token(at, x) {
  if (x === null || typeof x !== "object" || !isCount(x.token) || typeof x.text !== "string") {
    throw new Error(`${at} has no token and text`);
  }
  return { token: x.token, text: x.text.slice(0, mostText) };
}

// parseRound checks a round and returns its fields alone.
export function parseRound(x) {
  if (x === null || typeof x !== "object") throw new Error("no object");
  const { nodes, path } = x;
  if (!Array.isArray(nodes) || nodes.length < 1 || nodes.length > mostNodes) {
    throw new Error(`nodes: want 1 to ${mostNodes}, the root first`);
  }
  const round = {
    pos: isCount(x.pos) ? x.pos : 0,
    nodes: nodes.map((n, i) => {
      const node = { parent: n?.parent, ...token(`node ${i}`, n) };
      if (i === 0 ? node.parent !== -1 : !isCount(node.parent) || node.parent >= i) {
        throw new Error(`node ${i} has parent ${node.parent}, want -1 for node 0 and an earlier node for the others`);
      }
      if (!isProbability(n.q) || !isProbability(n.p)) throw new Error(`node ${i}: want probabilities from 0 to 1`);
      if (typeof n.q === "number") node.q = n.q;
      if (typeof n.p === "number") node.p = n.p;
      return node;
    }),
    next: token("next", x.next),
    live: x.live || nodes.length,
  };
  if (!isCount(round.live) || round.live > nodes.length) throw new Error(`live is ${x.live} of ${nodes.length} nodes`);
  if (!Array.isArray(path) || path[0] !== 0 ||
      path.some((n, i) => i > 0 && !(isCount(n) && n > 0 && n < round.live && round.nodes[n].parent === path[i - 1]))) {
    throw new Error("path: want node 0, and then live children of the one before");
  }
  round.path = path.slice();
  if (!isCount(x.kept) || x.kept < 1 || x.kept > path.length) throw new Error(`kept is ${x.kept}, want 1 to ${path.length}`);
  round.kept = x.kept;
  round.draw = typeof x.draw === "string" ? x.draw.slice(0, mostText) : "";
  return round;
}

// accepted returns how many drafted tokens a round adds to the output, as the server counts them.
export const accepted = (round) => Math.min(round.kept, round.path.length - 1);

// emitted returns the tokens that a round adds to the output; drafted says where each is from.
export function emitted(round) {
  const tokens = [];
  for (let i = 1; i <= round.kept; i++) {
    const drafted = i < round.path.length;
    tokens.push({ ...(drafted ? round.nodes[round.path[i]] : round.next), drafted });
  }
  return tokens;
}

function parseHeader(line) {
  let header;
  try {
    header = JSON.parse(line);
  } catch {
    header = null;
  }
  if (header === null || typeof header !== "object" || !(header.talf_trace >= 1)) {
    throw new Error("line 1 is no trace header, want a file that talf generate --trace wrote");
  }
  if (header.talf_trace > version) {
    throw new Error(`talf_trace is ${header.talf_trace}, want at most ${version}: a newer version wrote the file`);
  }
  return header;
}

// readTrace reads a file and calls take with each round. It returns the header, and whether the
// file goes on beyond the limits.
export async function readTrace(file, take, most = limits) {
  if (file.size > most.bytes) throw new Error(`the file has ${file.size} bytes, want at most ${most.bytes}`);
  const reader = file.stream().pipeThrough(new TextDecoderStream("utf-8", { fatal: true })).getReader();
  let rest = "";
  let lines = 0;
  let header = null;
  let rounds = 0;
  let nodes = 0;
  const line = (text) => {
    lines++;
    if (header === null) {
      header = parseHeader(text);
      return true;
    }
    if (text.trim() === "") return true;
    let round;
    try {
      round = parseRound(JSON.parse(text));
    } catch (err) {
      throw new Error(`line ${lines}: ${err instanceof SyntaxError ? "no JSON; was the run that wrote it interrupted?" : err.message}`);
    }
    rounds++;
    nodes += round.nodes.length;
    if (rounds > most.rounds || nodes > most.nodes) return false;
    take(round, rounds);
    return true;
  };
  try {
    for (;;) {
      let piece;
      try {
        piece = await reader.read();
      } catch {
        throw new Error("the file is no UTF-8 text");
      }
      if (piece.done) break;
      const parts = (rest + piece.value).split("\n");
      rest = parts.pop();
      if (rest.length > most.line) throw new Error(`line ${lines + parts.length + 1} has more than ${most.line} characters`);
      for (const part of parts) {
        if (!line(part)) return { header, cut: true };
      }
    }
    if (rest !== "" || header === null) {
      if (!line(rest)) return { header, cut: true };
    }
  } finally {
    reader.cancel().catch(() => {});
  }
  return { header, cut: false };
}
