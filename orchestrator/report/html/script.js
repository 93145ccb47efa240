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
  sortable(document);
  if (meta) linkNumbers(document, meta, offerItems);

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
