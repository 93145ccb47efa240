// The list of runs.
import { h, name } from "./dom.js";
import { bytes, count, get, share } from "./data.js";

const WORDS = { complete: "complete", running: "running", stopped: "stopped", foreign: "unreadable" };
// Names of a run's methods, or of its models, that its row lists.
const MOST = 5;

export const runs = async ({ go, query }) => {
  const found = await get("/api/runs");
  if (found.labels && !found.runs.length) {
    await go("/label", null, { replace: true });
    throw new DOMException("gone on", "AbortError");
  }
  if (found.single && !query.has("list")) {
    await go(`/run/${encodeURIComponent(found.single)}`, null, { replace: true });
    throw new DOMException("gone on", "AbortError");
  }
  const picked = new Set();
  const button = h("button", { type: "button", class: "main", disabled: true, click: () => {
    const [a, b] = picked;
    go("/compare", new URLSearchParams({ a, b }));
  } }, "Compare two runs");
  const pick = (event) => {
    picked[event.target.checked ? "add" : "delete"](event.target.value);
    button.disabled = picked.size !== 2;
  };
  const few = (names) => name(names.length > MOST ? `${names.slice(0, MOST - 1).join(", ")} and ${names.length - MOST + 1} more` : names.join(", "));
  const row = (run) => h("tr", {},
    h("td", {}, h("input", { type: "checkbox", value: run.name, change: pick, "aria-label": `Compare ${run.name}` })),
    h("th", { scope: "row" }, h("a", { href: `/run/${encodeURIComponent(run.name)}` }, name(run.name)),
      run.description && h("p", { class: "about" }, name(run.description)),
      h("p", { class: "brief" }, few(run.methods), run.models.length > 0 && " · ", few(run.models))),
    h("td", {}, h("span", { class: `state ${run.state}`, title: run.fault ?? null }, WORDS[run.state] ?? run.state),
      run.state !== "complete" && run.units_total && run.units_done != null ? h("span", { class: "aside" }, ` ${share(run.units_done / run.units_total)}`) : null),
    h("td", { class: "n" }, count(run.units_total)),
    h("td", { class: "n" }, run.units_failed ? h("b", { class: "bad" }, count(run.units_failed)) : count(run.units_failed)),
    h("td", { class: "of-run" }, few(run.methods)),
    h("td", { class: "of-run", title: run.models.join(", ") }, few(run.models)),
    h("td", { class: "n of-run" }, run.size ? bytes(run.size) : "–"),
    h("td", { class: "aside last" }, h("time", { datetime: new Date(run.at * 1000).toISOString() }, new Date(run.at * 1000).toLocaleString())));
  const heads = [["", ""], ["run", ""], ["state", ""], ["units", "n"], ["failed", "n"], ["methods", "of-run"], ["models", "of-run"], ["size", "n of-run"], ["last change", "last"]];
  const nothing = h("div", { class: "none-here" }, h("p", {}, "No runs found; start one with ", h("code", {}, "orchestrator run RECIPE")),
    h("p", { class: "note" }, "It appears here when this page is opened again. Other folders: ", h("code", {}, "orchestrator view FOLDER")));
  return {
    title: "Runs",
    content: h("div", { class: "wide" }, h("div", { class: "head" }, h("h1", {}, "Runs"),
      found.runs.length > 1 && h("p", { class: "pick" }, h("span", { class: "note" }, "Tick two runs "), button)),
      found.runs.length
        ? h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Runs" }, h("table", { class: "data runs" },
          h("thead", {}, h("tr", {}, heads.map(([text, kind]) => h("th", { scope: "col", class: kind || null }, text || h("span", { class: "away" }, "compare"))))),
          h("tbody", {}, found.runs.map(row))))
        : nothing),
  };
};
