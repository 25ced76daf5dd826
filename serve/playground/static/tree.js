// Drawings of draft trees, and words for them.

import { accepted, emitted } from "./trace.js";

const svgNS = "http://www.w3.org/2000/svg";

// Sizes of a drawing, in pixels.
const rowHeight = 27;
const pillHeight = 22;
const character = 7.25; // of the label, in a monospaced font of 12 px
const small = 6; // of the probability
const padding = 8;
const gap = 36; // between levels
const margin = 10;
const mostLabel = 18; // characters

const wide = /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe4f\uff00-\uff60\uffe0-\uffe6]|\p{Extended_Pictographic}/u;

// visible returns a token's text on one line, with marks for spaces and line breaks. Characters
// that are not to be seen, or that turn the text around them, become their code points.
export function visible(token) {
  if (token.text === "") return `<${token.token}>`;
  const text = token.text
    .replaceAll(" ", "·").replaceAll("\n", "↵").replaceAll("\t", "⇥")
    .replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (c) => `\\u${c.codePointAt(0).toString(16).padStart(4, "0")}`);
  const all = Array.from(text);
  return all.length > mostLabel ? `${all.slice(0, mostLabel - 1).join("")}…` : text;
}

function columns(label) {
  let n = 0;
  for (const c of label) n += wide.test(c) ? 2 : 1;
  return n;
}

export function percent(p) {
  if (p > 0 && p < 0.005) return "<1%";
  if (p < 1 && p >= 0.995) return ">99%";
  return `${Math.round(100 * p)}%`;
}

// probability is what is known of a node, "" if nothing is: the model's own below the path, where
// it was asked, otherwise the draft's. At temperature 0 the model's is there for its 64 likeliest
// tokens; what is not among them has less than a 64th.
function probability(node) {
  if (node.rare) return "<2%";
  const p = node.p ?? node.q;
  return p === undefined ? "" : percent(p);
}

const words = {
  root: "the last token before the round",
  kept: "accepted",
  past: "accepted, but the answer ended before it",
  rejected: "rejected",
  aside: "only scored",
  own: "the model's own token",
};

// describe returns the nodes of a round with what became of them, the model's own token last.
export function describe(round) {
  const at = new Map(round.path.map((n, i) => [n, i]));
  const depth = [];
  const asked = round.nodes.some((n) => n.p !== undefined);
  const nodes = round.nodes.map((n, i) => {
    depth[i] = i === 0 ? 0 : depth[n.parent] + 1;
    let fate = "rejected";
    if (i === 0) fate = "root";
    else if (at.has(i)) fate = at.get(i) > round.kept ? "past" : "kept";
    else if (i >= round.live) fate = "aside";
    return { ...n, depth: depth[i], fate, says: words[fate], rare: asked && at.has(n.parent) && n.p === undefined };
  });
  const last = round.path.at(-1);
  nodes.push({
    parent: last, ...round.next, depth: depth[last] + 1, fate: "own",
    says: round.kept < round.path.length ? `${words.own}, but the answer ended before it` : words.own,
  });
  return nodes;
}

// caption says what happened in a round.
export function caption(round) {
  const drafted = round.live - 1;
  const tokens = round.kept === 1 ? "1 token" : `${round.kept} tokens`;
  if (round.nodes.length === 1) return `No draft: the model wrote ${tokens}.`;
  const aside = round.nodes.length - round.live;
  let text = `${accepted(round)} of ${drafted} drafted ${drafted === 1 ? "node" : "nodes"} accepted; the round wrote ${tokens}`;
  if (aside > 0) text += `; ${aside} more nodes were only scored`;
  if (round.kept < round.path.length) text += "; the answer ended within it";
  return `${text}.`;
}

// place gives each node its spot: levels from left to right, leaves from top to bottom. What is
// kept comes first below its parent, at the same height, so that the path is the line at the top.
function place(nodes) {
  const rank = { own: 0, kept: 0, past: 0, rejected: 1, aside: 2 };
  const children = nodes.map(() => []);
  nodes.forEach((n, i) => i > 0 && children[n.parent].push(i));
  const widths = [];
  for (const n of nodes) {
    n.label = visible(n);
    n.odds = n.fate === "root" || n.fate === "own" ? "" : probability(n);
    n.width = columns(n.label) * character + (n.odds === "" ? 0 : n.odds.length * small + 6) + 2 * padding;
    widths[n.depth] = Math.max(widths[n.depth] ?? 0, n.width);
  }
  const left = [margin];
  widths.forEach((w, d) => (left[d + 1] = left[d] + w + gap));
  let next = margin + pillHeight / 2;
  const rows = (i) => {
    const n = nodes[i];
    n.x = left[n.depth];
    n.y = next;
    children[i].sort((a, b) => rank[nodes[a].fate] - rank[nodes[b].fate]); // siblings else keep their order
    for (const c of children[i]) rows(c);
    if (children[i].length === 0) next += rowHeight;
  };
  rows(0);
  return { width: left.at(-1) - gap + margin, height: next - rowHeight + pillHeight / 2 + margin };
}

function element(name, attributes, ...children) {
  const e = document.createElementNS(svgNS, name);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  e.append(...children);
  return e;
}

const fixed = (x) => x.toFixed(1);

// draw fills an svg element with the tree of a round.
export function draw(svg, round, name) {
  const nodes = describe(round);
  const { width, height } = place(nodes);
  svg.setAttribute("viewBox", `0 0 ${Math.ceil(width)} ${Math.ceil(height)}`);
  svg.setAttribute("width", Math.ceil(width));
  svg.setAttribute("height", Math.ceil(height));
  const spelt = emitted(round).map((t) => JSON.stringify(t.text)).join(" ");
  svg.setAttribute("aria-label", `${name}. ${caption(round)} Tokens: ${spelt}`);
  const edges = [];
  const pills = [];
  for (const n of nodes) {
    if (n.parent >= 0) {
      const from = nodes[n.parent];
      const x = from.x + from.width;
      edges.push(element("path", {
        class: `edge ${n.fate}`,
        d: `M${fixed(x)} ${fixed(from.y)}C${fixed(x + gap / 2)} ${fixed(from.y)} ${fixed(n.x - gap / 2)} ${fixed(n.y)} ${fixed(n.x)} ${fixed(n.y)}`,
      }));
    }
    const title = element("title", {}, `${JSON.stringify(n.text)}, token ${n.token}: ${n.says}${odds(n)}`);
    const box = element("rect", {
      x: fixed(n.x), y: fixed(n.y - pillHeight / 2), width: fixed(n.width), height: pillHeight, rx: n.fate === "own" ? 3 : pillHeight / 2,
    });
    const label = element("text", { x: fixed(n.x + padding), y: fixed(n.y + 4) }, n.label);
    const pill = element("g", { class: `node ${n.fate}` }, title, box, label);
    if (n.odds !== "") {
      pill.append(element("text", { class: "odds", x: fixed(n.x + n.width - padding), y: fixed(n.y + 3.5) }, n.odds));
    }
    pills.push(pill);
  }
  // Edges of the path lie on top of the others.
  edges.sort((a, b) => a.classList.contains("kept") - b.classList.contains("kept"));
  svg.replaceChildren(...edges, ...pills);
}

// example is a round to look at before there is one.
export const example = {
  pos: 0, live: 10, path: [0, 1, 4, 7], kept: 4, draw: "", next: { token: 10, text: " moon" },
  nodes: [
    { parent: -1, token: 0, text: " under" },
    { parent: 0, token: 1, text: " the", q: 0.71 }, { parent: 0, token: 2, text: " a", q: 0.2 }, { parent: 0, token: 3, text: " her", q: 0.04 },
    { parent: 1, token: 4, text: " light", q: 0.38 }, { parent: 1, token: 5, text: " tree", q: 0.33 }, { parent: 2, token: 6, text: " tree", q: 0.41 },
    { parent: 4, token: 7, text: " of", q: 0.86 }, { parent: 4, token: 8, text: ".", q: 0.06 }, { parent: 7, token: 9, text: " day", q: 0.47 },
  ],
};

// odds is what is known of a node's probabilities, in words.
export function odds(node) {
  let text = "";
  if (node.q !== undefined) text += `; the draft gave it ${percent(node.q)}`;
  if (node.rare) text += "; the model gives it less than 2%";
  if (node.p !== undefined) text += `; the model gives it ${percent(node.p)}`;
  return text;
}
