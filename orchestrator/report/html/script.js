"use strict";
(() => {
  const root = document.documentElement;
  const isDark = () => (root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches);

  const theme = document.getElementById("theme");
  const label = () => { theme.textContent = isDark() ? "Light" : "Dark"; };
  theme.hidden = false;
  label();
  theme.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; label(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", label);

  // What a mark of a chart stands for, and what a term means: under the pointer, at the focus, and
  // where a finger touches.
  const tip = document.getElementById("tip");
  const show = (event, below) => {
    const mark = event.target instanceof Element ? event.target.closest("[data-tip]") : null;
    tip.hidden = mark === null;
    if (mark === null) return;
    tip.textContent = mark.dataset.tip;
    const box = mark.getBoundingClientRect();
    const [x, y] = below ? [box.left, box.bottom + 6] : [event.clientX + 14, event.clientY + 16];
    tip.style.left = `${Math.max(8, Math.min(x, innerWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${Math.max(8, Math.min(y, innerHeight - tip.offsetHeight - 8))}px`;
  };
  document.addEventListener("pointermove", (event) => show(event, false));
  for (const kind of ["focusin", "click"]) document.addEventListener(kind, (event) => show(event, true));
  document.addEventListener("focusout", () => { tip.hidden = true; });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") tip.hidden = true; });

  const value = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.order === undefined ? cell.textContent : Number(cell.dataset.order || "NaN");
  };
  // What is undefined stays last, whichever way it is sorted.
  const compare = (one, two, way) => {
    if (typeof one === "string" || typeof two === "string") return way * String(one).localeCompare(two);
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
    const table = heading.closest("table");
    const way = heading.getAttribute("aria-sort") === "descending" ? 1 : -1;
    for (const other of heading.parentNode.cells) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", way === 1 ? "ascending" : "descending");
    const body = table.tBodies[0];
    const rows = Array.from(body.rows);
    rows.sort((one, two) => compare(value(one, column), value(two, column), way));
    body.append(...rows);
  };
  for (const heading of document.querySelectorAll("table.data thead th")) {
    const isSorted = heading.closest("table").tBodies[0].rows.length > 1;
    if (!heading.textContent || !(isSorted || heading.dataset.tip)) continue;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = heading.textContent;
    heading.replaceChildren(button);
    if (heading.dataset.tip) button.className = "term";
    if (isSorted) button.addEventListener("click", () => sort(heading));
  }

  /* ways */
  // A number that has items behind it says which command shows them; a click copies it.
  const meta = JSON.parse(document.getElementById("main").dataset.behind);
  const offerItems = (place, parts, ...children) => {
    const command = `orchestrator view ${meta.run} --open --items '${new URLSearchParams(parts)}'`;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "term";
    button.dataset.tip = `The items behind it; a click copies the command: ${command}`;
    button.append(...children);
    button.addEventListener("click", () => navigator.clipboard?.writeText(command).catch(() => {}));
    place.append(button);
  };
  for (const table of meta ? document.querySelectorAll("table.data") : []) {
    const titles = Array.from(table.tHead.rows[0].cells, (one) => [one.textContent, one.colSpan]);
    for (const row of table.tBodies[0].rows) {
      let place = 0;
      const cells = new Map(titles.map(([title, span]) => [title, row.cells[(place += span) - span]]));
      const texts = new Map([...cells].map(([title, cell]) => [title, cell?.textContent ?? ""]));
      for (const [title, parts] of ways(texts, meta, table.dataset.of)) {
        const cell = cells.get(title);
        if (cell?.textContent && !cell.querySelector("button")) offerItems(cell, parts, ...cell.childNodes);
      }
    }
  }
  for (const check of meta ? document.querySelectorAll("#glance .checks > div") : []) {
    const [about, says] = check.children;
    const of = check.closest(".question")?.dataset.of;
    const parts = wayOf(about.textContent.replace(/^! /, "").trim(), says.textContent, meta, of);
    if (parts.length) { says.append(" "); offerItems(says, parts, "Items"); }
  }

  // A chart as a file: the drawing as it stands, or the Vega-Lite that it was drawn from.
  const specified = JSON.parse(document.getElementById("charts").textContent);
  const save = (name, type, content) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([content], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };
  for (const figure of document.querySelectorAll("figure")) {
    const drawing = figure.querySelector(".chart svg");
    if (!drawing || !(figure.id in specified)) continue;
    const place = document.createElement("p");
    place.className = "save";
    const offer = (text, action) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = text;
      button.setAttribute("aria-label", `${text} of ${figure.querySelector("h3").textContent}`);
      button.addEventListener("click", action);
      place.append(button);
    };
    offer("SVG", () => {
      save(`${figure.id}.svg`, "image/svg+xml", new XMLSerializer().serializeToString(drawing));
    });
    offer("Vega-Lite", () => save(
      `${figure.id}.vl.json`, "application/json", JSON.stringify(specified[figure.id], null, 1)));
    figure.querySelector("details").before(place);
  }

  // Browsers leave buttons out of the headings that they repeat on each sheet.
  const headings = [...document.querySelectorAll("table.data thead button")].map((one) => [one.parentNode, one]);
  addEventListener("beforeprint", () => {
    for (const [heading, button] of headings) heading.replaceChildren(...button.childNodes);
  });
  addEventListener("afterprint", () => {
    for (const [heading, button] of headings) { button.append(...heading.childNodes); heading.append(button); }
  });
})();
