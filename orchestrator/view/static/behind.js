// From a number of the report to the items behind it.
import { h } from "./dom.js";
import { lined } from "./table.js";
import { ways } from "./ways.js";

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
