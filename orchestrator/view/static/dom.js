// Elements made of data. Text is only ever text: nothing here reads markup.

const SVG = "http://www.w3.org/2000/svg";
// What a page of the report may hold; anything else is left out.
const SHAPES = new Set(["svg", "g", "path", "line", "rect", "text", "tspan", "circle", "defs",
  "clipPath", "title", "linearGradient", "stop"]);
const TAGS = new Set(["a", "b", "bdi", "button", "caption", "code", "dd", "details", "div", "dl", "dt", "figcaption", "figure",
  "h2", "h3", "h4", "li", "p", "pre", "section", "span", "summary", "table", "tbody", "td", "th", "thead", "tr", "ul", "wbr"]);

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

/** A part of the report, given as [tag, attributes, children]; it has no styles, scripts or addresses. */
export const built = (tree) => {
  if (typeof tree === "string") return document.createTextNode(tree);
  const [tag, attributes, children] = tree;
  if (!SHAPES.has(tag) && !TAGS.has(tag)) return null;
  const kept = Object.entries(attributes).filter(([key]) => !/^(on|style|href|src|xlink|form)/i.test(key));
  return (SHAPES.has(tag) ? s : h)(tag, Object.fromEntries(kept), children.map(built));
};

/** A term that says what it means: under the pointer, at the focus, at a touch. */
export const term = (text, says) => (says ? h("button", { type: "button", class: "term", data: { tip: says } }, sentence(text)) : sentence(text));

export const segmented = (label, options, chosen, choose) => h("div", { class: "segments", role: "group", "aria-label": label },
  options.map(([key, text]) => h("button", {
    type: "button", "aria-pressed": String(key === chosen), click: () => choose(key),
  }, text)));
