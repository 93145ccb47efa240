// What the report and the viewer do with a page: which items are behind a number, sorted tables, tips.

// Of a check on the first screen: which measure shows what it is about, and how.
const CHECKED = { missing: ["undefined", "failed"], run: ["failed"], judges: ["split"], judge: ["split"] };

/** The condition that finds the items of the first of these counts, of a method, that has any. */
const having = (meta, of, ...names) => {
  const keys = names.flatMap((name) => {
    const own = meta.measures.filter((one) => one.key === name || one.key === `${of}.${name}`);
    const others = of ? [] : meta.measures.filter((one) => one.key.endsWith(`.${name}`));
    // Of several methods no one is meant.
    return own.length ? own : others.length === 1 ? others : [];
  }).map((one) => one.key);
  return keys.filter((key) => (meta.counts?.[key] ?? 1) > 0).slice(0, 1).map((key) => ["where", `${key}>0`]);
};

/** Items in the order of a measure, the largest first. */
const most = (meta, of, name) => {
  const keys = meta.measures.filter((one) => one.key === `${of}.${name}` || (!of && one.key.endsWith(`.${name}`)));
  return keys.length === 1 ? [["rows", "numbers"], ["sort", `-${keys[0].key}`]] : [];
};

/** What each number of a row leads to, as [title of its column, parts of an address]. */
export const ways = (cells, meta, of = "") => {
  const key = (title) => (cells.has(title) ? meta.models.find((one) => one === cells.get(title)) : undefined);
  const [model, other] = [key("model"), key("against")];
  const inCategory = cells.has("category") && meta.categories.includes(cells.get("category")) ? [["category", cells.get("category")]] : [];
  const by = meta.by.length > 1 && meta.by.includes(of) ? [["by", of]] : [];
  // What an analysis says of a model is the worth of no answer.
  const isWorth = of ? meta.by.includes(of) : meta.by.length === 1;
  const lost = (loser, to) => [["show", "lost"], ["of", loser], ...(to === undefined ? [] : [["to", to]]), ...by, ...inCategory];
  const found = [];
  if (isWorth && model !== undefined && other !== undefined) found.push(["wins", lost(other, model)]);
  else if (isWorth && model !== undefined) for (const title of ["P(win)", "win rate", "adjusted win rate", "mean score", "mean d", "rating", "rank"]) found.push([title, [["sort", `worth of ${model}`], ...by, ...inCategory]]);
  if (inCategory.length) found.push(["prompts", inCategory], ["category", inCategory]);
  if (Number(cells.get("missing")) > 0) found.push(["missing", having(meta, of, "undefined", "failed")]);
  // Of requests, one that failed may have been sent again.
  if (Number(cells.get("failed")) > 0 && cells.has("rows")) found.push(["failed", having(meta, cells.get("method"), "failed")]);
  const whose = /\((.*)\)$/.exec(cells.get("judge") ?? "")?.[1] ?? of;
  const effect = cells.get("effect") ?? "";
  if (/flip/i.test(effect) && Number.parseFloat(cells.get("share")) > 0) found.push(["share", having(meta, whose, "flips")]);
  if (/bias|same decision/i.test(effect)) found.push(["share", most(meta, whose, "gap")]);
  if (Number.parseFloat(cells.get("same verdict")) < 100) found.push(["same verdict", having(meta, of, "split")]);
  // Nothing is behind a number that there is not.
  return found.filter(([title, parts]) => parts.length && cells.has(title) && !cells.get(title).startsWith("–"));
};

/** What a check beside a result leads to, as parts of an address; [] where no items are behind it. */
export const wayOf = (about, says, meta, of = "") => {
  // Nothing is behind nothing, and what a recipe says of a judge is behind no item.
  if (/^no(ne)? |none failed/.test(says) || (about === "judge" && !says.includes("the checks"))) return [];
  if (about === "order") return most(meta, of, "gap");
  if (about === "note" && says.startsWith("answers cut")) return having(meta, "", "cut");
  return having(meta, of, ...(CHECKED[about] ?? []));
};

/** Give each number that items are behind, by `found`, to `offer(place, parts, ...children)`, which leads to them. */
export const linkNumbers = (content, meta, offer, found = ways) => {
  for (const table of content.querySelectorAll("table.data[data-of]")) {
    const titles = Array.from(table.tHead.rows[0].cells, (one) => [one.textContent, one.colSpan]);
    for (const row of table.tBodies[0].rows) {
      let place = 0;
      const cells = new Map(titles.map(([title, span]) => [title, row.cells[(place += span) - span]]));
      const texts = new Map([...cells].map(([title, cell]) => [title, cell?.textContent ?? ""]));
      for (const [title, parts] of found(texts, meta, table.dataset.of)) {
        const cell = cells.get(title);
        if (cell?.textContent && !cell.querySelector("a, button")) offer(cell, parts, ...cell.childNodes);
      }
    }
  }
  for (const row of content.querySelectorAll(".forest tbody tr")) {
    const [model, shown] = [row.querySelector("bdi").title, row.querySelector(".n:not(.rank)")];
    const [way] = ways(new Map([["model", model], ["rating", ""]]), meta, row.closest(".question").dataset.of);
    if (way && shown.textContent) offer(shown, way[1], ...shown.childNodes);
  }
  for (const check of content.querySelectorAll("#glance .checks > div")) {
    const [about, says] = check.children;
    const parts = wayOf(about.textContent.replace(/^! /, "").trim(), says.textContent, meta, check.closest(".question")?.dataset.of);
    if (parts.length) { says.append(" "); offer(says, parts, "Items"); }
  }
};

const valueOf = (row, column) => {
  const cell = row.cells[column];
  return cell.dataset.order === undefined ? cell.textContent : Number(cell.dataset.order || "NaN");
};

// What is undefined stays last, whichever way it is sorted.
const compareValues = (one, two, way) => {
  if (typeof one === "string" || typeof two === "string") return way * String(one).localeCompare(two, undefined, { numeric: true });
  if (Number.isNaN(one) || Number.isNaN(two)) return Number.isNaN(one) - Number.isNaN(two);
  return way * (one - two);
};

const sort = (heading) => {
  // A heading may stand over two cells: a number, and its interval.
  let column = 0;
  for (const before of heading.parentNode.cells) {
    if (before === heading) break;
    column += before.colSpan;
  }
  const way = heading.getAttribute("aria-sort") === "descending" ? 1 : -1;
  for (const other of heading.parentNode.cells) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", way === 1 ? "ascending" : "descending");
  const body = heading.closest("table").tBodies[0];
  body.append(...Array.from(body.rows).sort((one, two) => compareValues(valueOf(one, column), valueOf(two, column), way)));
};

/** Make the headings of tables buttons that sort them, and terms where they have a meaning. */
export const sortable = (content) => {
  for (const heading of content.querySelectorAll("table.data thead th")) {
    const isSorted = heading.closest("table").tBodies[0].rows.length > 1;
    if (!heading.textContent || !(isSorted || heading.dataset.tip)) continue;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.replaceChildren(button);
    if (heading.dataset.tip) button.className = "term";
    if (isSorted) button.addEventListener("click", () => sort(heading));
  }
};

/** Show something at a place of the window. */
export const showTip = (content, x, y) => {
  const shown = document.getElementById("tip");
  shown.replaceChildren(content);
  shown.hidden = false;
  shown.style.left = `${Math.max(8, Math.min(x, innerWidth - shown.offsetWidth - 8))}px`;
  shown.style.top = `${Math.max(8, Math.min(y, innerHeight - shown.offsetHeight - 8))}px`;
};

export const hideTip = () => { document.getElementById("tip").hidden = true; };

// What a mark of a chart stands for, and what a term means: under the pointer, at the focus, and
// where a finger touches.
const tell = (event, below) => {
  const target = event.target instanceof Element ? event.target : null;
  const mark = target?.closest("[data-tip]");
  const box = mark?.getBoundingClientRect();
  if (mark) showTip(mark.dataset.tip, below ? box.left : event.clientX + 14, below ? box.bottom + 6 : event.clientY + 16);
  else if (!target?.closest("[data-token]")) hideTip();
};
document.addEventListener("pointermove", (event) => tell(event, false));
for (const kind of ["focusin", "click"]) document.addEventListener(kind, (event) => tell(event, true));
document.addEventListener("focusout", hideTip);
document.addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });
