// Texts from outside: as they are, as a little Markdown, or with what differs from another marked.
import { h } from "./dom.js";

const MOST_STEPS = 2000;

const words = (text) => text.match(/\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu) ?? [];

/**
 * The words of two texts as stretches [kind, words]: "same", "gone" (only in the first), "new".
 * Myers' greedy O(ND) difference; null where the texts differ in more than MOST_STEPS words.
 */
export const difference = (before, after) => {
  const a = words(before);
  const b = words(after);
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let tail = 0;
  while (tail < a.length - start && tail < b.length - start && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail += 1;
  const inner = shortest(a.slice(start, a.length - tail), b.slice(start, b.length - tail));
  if (inner === null) return null;
  return merged([["same", a.slice(0, start)], ...inner, ["same", a.slice(a.length - tail)]]);
};

const shortest = (a, b) => {
  const most = Math.min(a.length + b.length, MOST_STEPS);
  const middle = most + 1;
  const reach = new Int32Array(2 * most + 3); // by diagonal k, at middle + k: how far in `a`
  const trace = [];
  for (let d = 0; d <= most; d += 1) {
    trace.push(reach.slice(middle - d - 1, middle + d + 2));
    for (let k = -d; k <= d; k += 2) {
      let x = isDown(reach, middle, k, d) ? reach[middle + k + 1] : reach[middle + k - 1] + 1;
      while (x < a.length && x - k < b.length && a[x] === b[x - k]) x += 1;
      reach[middle + k] = x;
      if (x >= a.length && x - k >= b.length) return back(a, b, trace);
    }
  }
  return null;
};

const isDown = (reach, middle, k, d) => k === -d || (k !== d && reach[middle + k - 1] < reach[middle + k + 1]);

const back = (a, b, trace) => {
  const found = [];
  let x = a.length;
  let y = b.length;
  for (let d = trace.length - 1; d > 0; d -= 1) {
    const down = isDown(trace[d], d + 1, x - y, d);
    const from = x - y + (down ? 1 : -1);
    const fromX = trace[d][d + 1 + from];
    const fromY = fromX - from;
    while (x > fromX && y > fromY) { x -= 1; y -= 1; found.push(["same", [a[x]]]); }
    if (down) found.push(["new", [b[fromY]]]); else found.push(["gone", [a[fromX]]]);
    x = fromX;
    y = fromY;
  }
  while (x > 0) { x -= 1; found.push(["same", [a[x]]]); }
  return found.reverse();
};

const merged = (stretches) => {
  const found = [];
  for (const [kind, some] of stretches) {
    if (!some.length) continue;
    const text = some.join("");
    if (found.at(-1)?.[0] === kind) found.at(-1)[1] += text;
    else found.push([kind, text]);
  }
  return found;
};

/** A text with what another has not marked, and optionally what only the other has struck out. */
export const compared = (other, text, { gone = true } = {}) => {
  const stretches = difference(other, text);
  if (stretches === null) return [h("p", { class: "note" }, "These texts differ too much to mark the differences."), h("pre", { dir: "auto" }, text)];
  return h("pre", { dir: "auto" }, stretches.map(([kind, some]) => {
    if (kind === "same") return some;
    if (kind === "new") return h("ins", {}, some);
    return gone ? h("del", {}, some) : null;
  }));
};

// -- a little Markdown: what answers use, made of elements; links and pictures stay text ------------

const INLINE = /(`+)(.+?)\1|\*\*(.+?)\*\*|__(.+?)__|\*(\S(?:.*?\S)?)\*/gs;
const MOST_INLINE = 20000;

const inline = (text, depth = 0) => {
  if (depth > 3 || text.length > MOST_INLINE) return [text];
  const found = [];
  let at = 0;
  for (const match of text.matchAll(INLINE)) {
    if (match.index > at) found.push(text.slice(at, match.index));
    if (match[2] !== undefined) found.push(h("code", {}, match[2]));
    else if (match[3] ?? match[4]) found.push(h("strong", {}, inline(match[3] ?? match[4], depth + 1)));
    else found.push(h("em", {}, inline(match[5], depth + 1)));
    at = match.index + match[0].length;
  }
  found.push(text.slice(at));
  return found;
};

export const markdown = (text) => {
  const lines = text.split("\n");
  const blocks = [];
  for (let at = 0; at < lines.length;) {
    const line = lines[at];
    const fence = line.match(/^\s*(```+|~~~+)/);
    if (fence) {
      const end = lines.findIndex((one, index) => index > at && one.trim().startsWith(fence[1]));
      const until = end < 0 ? lines.length : end;
      blocks.push(h("pre", {}, h("code", {}, lines.slice(at + 1, until).join("\n"))));
      at = until + 1;
    } else if (/^#{1,6}\s/.test(line)) {
      blocks.push(h("p", { class: "heading" }, inline(line.replace(/^#+\s+/, ""))));
      at += 1;
    } else if (/^\s*([-*+]|\d{1,9}[.)])\s/.test(line)) {
      const ordered = /^\s*\d/.test(line);
      const list = [];
      const start = ordered ? Number(line.trim().match(/^\d+/)[0]) : null;
      while (at < lines.length && /^\s*([-*+]|\d{1,9}[.)])\s/.test(lines[at]) && /^\s*\d/.test(lines[at]) === ordered) {
        list.push(h("li", {}, inline(lines[at].replace(/^\s*([-*+]|\d+[.)])\s+/, ""))));
        at += 1;
      }
      blocks.push(h(ordered ? "ol" : "ul", { start }, list));
    } else if (/^>\s?/.test(line)) {
      const quoted = [];
      while (at < lines.length && /^>\s?/.test(lines[at])) { quoted.push(lines[at].replace(/^>\s?/, "")); at += 1; }
      blocks.push(h("blockquote", {}, inline(quoted.join("\n"))));
    } else if (!line.trim()) {
      at += 1;
    } else {
      const some = [];
      while (at < lines.length && lines[at].trim() && !/^(#{1,6}\s|>\s?|\s*(```|~~~)|\s*([-*+]|\d{1,9}[.)])\s)/.test(lines[at])) { some.push(lines[at]); at += 1; }
      if (!some.length) { some.push(line); at += 1; }
      blocks.push(h("p", {}, inline(some.join("\n"))));
    }
  }
  return h("div", { class: "markdown", dir: "auto" }, blocks);
};
