// Tables as the report draws them: sorted by a click on a heading, intervals on their column's axis.
import { h, meaning, name, s, sentence, term } from "./dom.js";

const TALL = 20;
const SHORT = 12;

const interval = ([low, high, at]) => s("svg", { class: "iv", viewBox: "0 0 72 12", "aria-hidden": "true" },
  s("line", { x1: low, x2: high, y1: 6, y2: 6 }), at !== null && s("circle", { cx: at, cy: 6, r: 3.2 }));

// A value and its interval are cells of their own, so that values stand on one decimal point.
const cells = (one, index, isWide) => [
  h(index === 0 && !one.number ? "th" : "td",
    { scope: index === 0 && !one.number ? "row" : null, class: one.number ? "n" : one.text.length <= SHORT ? "short" : null },
    name(one.text), one.aside && !isWide && [" ", h("span", { class: "aside" }, one.aside)]),
  isWide && h("td", { class: one.aside.startsWith("(") ? "b why" : "b" }, one.aside, one.interval && interval(one.interval)),
];

// What is undefined stays last, whichever way it is sorted.
const compare = (one, two, way) => {
  if (!one.number) return way * one.text.localeCompare(two.text, undefined, { numeric: true });
  if (one.order === "" || two.order === "") return (one.order === "") - (two.order === "");
  return way * (Number(one.order) - Number(two.order));
};

/** Tables that were drawn, with their rows, for those who add links to them. */
export const lined = new WeakMap();

export const grid = (table, within = "") => {
  const body = h("tbody", {}, table.rows.length
    ? table.rows.map((row) => h("tr", {}, row.map((one, index) => cells(one, index, table.bounded[index]))))
    : h("tr", {}, h("td", { class: "none", colspan: table.columns.length }, "nothing to show")));
  const lines = table.rows.map((row, index) => [row, body.rows[index]]);
  const heads = table.columns.map(([title, number], column) => {
    const head = h("th", { scope: "col", class: number ? "n" : null, colspan: table.bounded[column] ? 2 : null });
    if (table.rows.length < 2 || !title) { head.append(...[term(title)].flat()); return head; }
    const says = meaning(title);
    head.append(h("button", { type: "button", class: says && "term", data: says ? { tip: says } : {}, click: () => {
      const way = head.getAttribute("aria-sort") === "descending" ? 1 : -1;
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", way === 1 ? "ascending" : "descending");
      lines.sort(([one], [two]) => compare(one[column], two[column], way));
      body.append(...lines.map(([, line]) => line));
    } }, sentence(title)));
    return head;
  });
  const drawn = h("table", { class: table.bounded.filter(Boolean).length > 2 ? "data dense" : "data" }, h("thead", {}, h("tr", {}, heads)), body);
  lined.set(drawn, { table, lines });
  return [
    h("div", { class: table.rows.length > TALL ? "scroll tall" : "scroll", tabindex: 0, role: "region", "aria-label": `${table.title}${within && ` (${within})`}, table` },
      drawn),
    table.notes.map((note) => h("p", { class: "note" }, sentence(note))),
  ];
};
