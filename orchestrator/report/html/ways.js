// Which items are behind a number of a table: of the report and of the viewer.

/** What each number of a row leads to, as [title of its column, parts of an address]. */
export const ways = (cells, meta) => {
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
  // Nothing is behind a number that there is not.
  return found.filter(([title, parts]) => parts.length && !cells.get(title)?.startsWith("–"));
};
