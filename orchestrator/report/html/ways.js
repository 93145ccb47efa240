// Which items are behind a number: of the report and of the viewer.

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
  const lost = (loser, to) => [["show", "lost"], ["of", loser], ...(to === undefined ? [] : [["to", to]]), ...by, ...inCategory];
  const found = [];
  if (meta.by.length && model !== undefined && other !== undefined) found.push(["wins", lost(other, model)]);
  else if (meta.by.length && model !== undefined) for (const title of ["P(win)", "win rate", "mean score", "rating", "rank"]) found.push([title, lost(model)]);
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
  return found.filter(([title, parts]) => parts.length && !cells.get(title)?.startsWith("–"));
};

/** What a check beside a result leads to, as parts of an address; [] where no items are behind it. */
export const wayOf = (about, says, meta, of = "") => {
  if (about === "order") return most(meta, of, "gap");
  if (about === "note" && says.startsWith("answers cut")) return having(meta, "", "cut");
  if (/^none|none failed/.test(says)) return [];
  return having(meta, of, ...(CHECKED[about] ?? []));
};
