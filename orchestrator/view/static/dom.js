// Elements made of data. Text is only ever text: nothing here reads markup.

const SVG = "http://www.w3.org/2000/svg";
// What a drawing of the report may hold; anything else is left out.
const SHAPES = new Set(["svg", "g", "path", "line", "rect", "text", "tspan", "circle", "defs",
  "clipPath", "title", "linearGradient", "stop"]);

const append = (element, children) => {
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
  return element;
};

const set = (element, attributes) => {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else if (name === "data") Object.assign(element.dataset, value);
    else if (name === "style") for (const [key, one] of Object.entries(value)) element.style.setProperty(key, one);
    else element.setAttribute(name, value === true ? "" : value);
  }
  return element;
};

export const h = (tag, attributes = {}, ...children) =>
  append(set(document.createElement(tag), attributes), children);

export const s = (tag, attributes = {}, ...children) =>
  append(set(document.createElementNS(SVG, tag), attributes), children);

export const name = (text) => h("bdi", {}, text);

// As in report/html/shell.py.
const LETTER = "\\u0590-\\u08ff\\ufb1d-\\ufdff\\ufe70-\\ufefc";
const RIGHT_TO_LEFT = new RegExp(`([${LETTER}]+(?:[ _.-][${LETTER}]+)*)`);

/** A sentence or a title; names in scripts from right to left keep their place in it. */
export const sentence = (text) => text.split(RIGHT_TO_LEFT).map((part, index) => (index % 2 ? name(part) : part));

/** A sentence whose commands stand between backticks. */
export const spoken = (text) => text.split("`").map((part, index) => (index % 2 ? h("code", {}, part) : sentence(part)));

/** A drawing of the report, given as [tag, attributes, children]. */
export const drawing = (tree) => {
  if (typeof tree === "string") return document.createTextNode(tree);
  const [tag, attributes, children] = tree;
  if (!SHAPES.has(tag)) return null;
  const kept = Object.entries(attributes).filter(([key]) => !/^(on|style|href|xlink)/i.test(key));
  return s(tag, Object.fromEntries(kept), children.map(drawing));
};

// What terms mean, by where they stand: the glossary's own texts.
let known = {};
export const setTerms = (found) => { known = found; };
export const meaning = (text, where = "column") => known[where]?.[text];

/** A term that says what it means: under the pointer, at the focus, at a touch. */
export const term = (text, says = meaning(text)) => (says ? h("button", { type: "button", class: "term", data: { tip: says } }, sentence(text)) : sentence(text));

/** A sentence on intervals with each kind that it names as a term. */
export const explained = (text) => Object.entries(known.interval ?? {}).reduce((parts, [kind, says]) => {
  const at = parts.findIndex((part) => typeof part === "string" && part.includes(kind));
  if (at < 0) return parts;
  const from = parts[at].indexOf(kind);
  return [...parts.slice(0, at), parts[at].slice(0, from), term(kind, says), parts[at].slice(from + kind.length), ...parts.slice(at + 1)];
}, sentence(text));

const tip = () => document.getElementById("tip");

/** Show something beside the pointer, or beside an element that has the focus. */
export const showTip = (content, x, y) => {
  const shown = tip();
  shown.replaceChildren(content);
  shown.hidden = false;
  const room = innerWidth - shown.offsetWidth - 8;
  shown.style.left = `${Math.max(8, Math.min(x + 14, room))}px`;
  shown.style.top = `${Math.max(8, Math.min(y + 16, innerHeight - shown.offsetHeight - 8))}px`;
};

export const hideTip = () => { tip().hidden = true; };

export const segmented = (label, options, chosen, choose) => h("div", { class: "segments", role: "group", "aria-label": label },
  options.map(([key, text]) => h("button", {
    type: "button", "aria-pressed": String(key === chosen), click: () => choose(key),
  }, text)));
