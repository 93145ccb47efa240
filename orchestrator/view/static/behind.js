// From a number of the report to the items behind it.
import { h } from "./dom.js";
import { lined } from "./table.js";

/** What each number of a row leads to, as [title of its column, parts of an address]. */
const ways = (cells, meta) => {
  const key = (title) => (cells.has(title) ? meta.models.find((one) => one === cells.get(title)) : undefined);
  const flag = (name) => meta.measures.filter((one) => one.key === name || one.key.endsWith(`.${name}`)).slice(0, 1).map((one) => ["where", `${one.key}>0`]);
  const [model, other] = [key("model"), key("against")];
  const inCategory = cells.has("category") && meta.categories.includes(cells.get("category")) ? [["category", cells.get("category")]] : [];
  const lost = (of, to) => [["show", "lost"], ["of", of], ...(to === undefined ? [] : [["to", to]]), ...inCategory];
  const found = [];
  if (meta.by.length && model !== undefined && other !== undefined) found.push(["wins", lost(other, model)]);
  else if (meta.by.length && model !== undefined) for (const title of ["P(win)", "win rate", "mean score", "rating", "rank"]) found.push([title, lost(model)]);
  if (inCategory.length) found.push(["prompts", inCategory], ["category", inCategory]);
  for (const title of ["failed", "missing"]) if (flag("failed").length && Number(cells.get(title)) > 0) found.push([title, flag("failed")]);
  if (/flip/i.test(cells.get("effect") ?? "")) found.push(["share", flag("flips")]);
  if (cells.has("same verdict")) found.push(["same verdict", flag("split")]);
  return found.filter(([, parts]) => parts.length);
};

/** Make links of the numbers in all tables of an element; `meta` is a page of the run's items. */
export const linkNumbers = (run, content, meta) => {
  for (const drawn of content.querySelectorAll("table.data")) {
    const { table, lines } = lined.get(drawn) ?? { table: { columns: [] }, lines: [] };
    for (const [row, line] of lines) {
      const cells = new Map(table.columns.map(([title], at) => [title, row[at].text]));
      const places = table.columns.map(([title], at) => [title, at + table.bounded.slice(0, at).filter(Boolean).length]);
      for (const [title, parts] of ways(cells, meta)) {
        const cell = line?.cells[places.find(([one]) => one === title)?.[1]];
        if (!cell || cell.querySelector("a") || !cell.textContent) continue;
        const says = parts.some(([key]) => key === "show") ? "the items behind it: who lost" : "the items behind it";
        cell.replaceChildren(h("a", { class: "behind-it", href: `/run/${encodeURIComponent(run)}/items?${new URLSearchParams(parts)}`, title: says }, [...cell.childNodes]));
      }
    }
  }
};
