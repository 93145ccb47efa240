// The shell: addresses, the bar, keys, light and dark, and whether a run has gone on.
import { h, name, spoken } from "./dom.js";
import { hideTip } from "./ways.js";
import { get, runPath, share } from "./data.js";
import { runs } from "./runs.js";
import { overview } from "./overview.js";
import { items } from "./items.js";
import { item } from "./item.js";
import { compared } from "./compared.js";
import { label } from "./label.js";

const LIVE_MS = 2000;
const IDLE_MS = 15000;
const main = document.getElementById("main");
const bar = document.getElementById("bar");
let page = null;
let visit = 0;
let timer = 0;
let slow = 0; // of the page that is on its way; one that was left must not write over the next
let waiting = null; // a key that was pressed while the next page was on its way

const ROUTES = [
  [/^\/$/, runs],
  [/^\/compare$/, compared],
  [/^\/label$/, label],
  [/^\/run\/([^/]+)$/, overview],
  [/^\/run\/([^/]+)\/items$/, items],
  [/^\/run\/([^/]+)\/item\/(\d+)$/, item],
];

/** The address of the page as a plain object, to be changed and gone to. */
const address = () => ({ path: location.pathname, query: new URLSearchParams(location.search) });

const link = (path, query) => (query && [...query].length ? `${path}?${query}` : path);

/** Go to an address; `replace` leaves no step in the history. */
export const go = (path, query, { replace = false } = {}) => {
  const to = link(path, query);
  if (to !== location.pathname + location.search) history[replace ? "replaceState" : "pushState"](null, "", to);
  return show();
};

/** Change what the address says without making the page anew. */
export const remember = (query) => history.replaceState(null, "", link(location.pathname, query));

const show = async () => {
  const mine = ++visit;
  clearTimeout(timer);
  clearTimeout(slow);
  hideTip();
  page?.leave?.();
  page = null;
  const { path, query } = address();
  const found = ROUTES.map(([pattern, make]) => [path.match(pattern), make]).find(([match]) => match);
  slow = setTimeout(() => main.replaceChildren(h("p", { class: "wait", role: "status" }, "Reading …")), 250);
  try {
    if (!found) throw new Error("There is no page at this address.");
    const [match, make] = found;
    const parts = match.slice(1).map(decodeURIComponent);
    const made = await make({ parts, query, go, remember, isCurrent: () => mine === visit });
    if (mine !== visit) return;
    page = made;
    main.replaceChildren(...[made.content].flat(Infinity).filter(Boolean));
    document.title = `${made.title} · orchestrator`;
    drawBar(made, parts[0]);
    made.shown?.();
    if (waiting) page.key?.(waiting);
    waiting = null;
    if (parts[0]) watch(parts[0], mine);
  } catch (error) {
    if (mine !== visit || error.name === "AbortError") return;
    main.replaceChildren(h("div", { class: "fault state-page", role: "alert" }, h("h1", {}, "This page cannot be shown"),
      h("p", {}, spoken(error.message)), h("p", {}, h("a", { class: "button", href: "/?list" }, "All runs"))));
    drawBar({ title: "", trail: [] });
  } finally {
    if (mine === visit) clearTimeout(slow);
  }
};

const drawBar = (made, run) => {
  const trail = [["/", "Runs"], ...(made.trail ?? [])];
  bar.replaceChildren(
    // Who labels must not see names of runs or models.
    made.blind ? "" : h("nav", { "aria-label": "Breadcrumb" }, h("ol", {}, trail.map(([href, text], index) =>
      h("li", {}, index === trail.length - 1 && made.trail?.length ? h("span", { "aria-current": "page" }, name(text)) : h("a", { href }, name(text)))))),
    run ? h("span", { id: "state", role: "status" }) : "",
    h("span", { class: "gap" }),
    h("button", { type: "button", id: "theme", click: turn }, isDark() ? "Light" : "Dark"),
    h("button", { type: "button", "aria-label": "Keys", title: "Keys (?)", click: help }, "?"),
  );
};

// -- a run that goes on --------------------------------------------------------------------------

const watch = async (run, mine) => {
  let wait = IDLE_MS;
  try {
    const state = await get(`${runPath(run)}/state`);
    if (mine !== visit) return;
    const shown = document.getElementById("state");
    const total = state.total ?? 0;
    const done = total ? 1 - state.left / total : null;
    shown.className = state.alive ? "live" : "";
    shown.textContent = state.alive ? `running${done === null ? "" : ` · ${share(done)}`}`
      : state.left ? `stopped · ${state.left.toLocaleString("en-US")} units left` : "";
    if (page?.version && state.version !== page.version) await page.refresh?.();
    if (state.alive) wait = LIVE_MS;
  } catch {
    if (mine === visit) document.getElementById("state").textContent = "no connection to the viewer";
  }
  if (mine === visit) timer = setTimeout(() => watch(run, mine), wait);
};

// -- light and dark ------------------------------------------------------------------------------

const root = document.documentElement;
const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
const turn = () => {
  root.dataset.theme = isDark() ? "light" : "dark";
  localStorage.setItem("theme", root.dataset.theme);
  document.getElementById("theme").textContent = isDark() ? "Light" : "Dark";
};
const chosen = localStorage.getItem("theme");
if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;

// -- keys ----------------------------------------------------------------------------------------

const KEYS = [
  ["j, ↓, →", "next row, or next item"], ["k, ↑, ←", "previous row, or previous item"], ["Enter", "open the row"],
  ["/", "search"], ["u, Esc", "one level up"], ["g", "first row"], ["G", "last row"], ["e", "longer or shorter answers"], ["s", "swap the orders of a judgment"],
  ["d", "answers with differences"], ["t", "answers by tokens"], ["m", "answers as Markdown"], ["p", "answers as plain text"],
  ["1, 2, 0", "label a row: answer 1, answer 2, tie"], ["Backspace", "remove the label"],
  ["?", "these keys"],
];

const help = () => {
  const dialog = document.getElementById("help");
  dialog.replaceChildren(h("h2", { id: "help-title" }, "Keys"),
    h("dl", {}, KEYS.map(([key, text]) => h("div", {}, h("dt", {}, h("kbd", {}, key)), h("dd", {}, text)))),
    h("button", { type: "button", click: () => dialog.close() }, "Close"));
  dialog.showModal();
};

document.addEventListener("keydown", (event) => {
  const field = event.target.closest?.("input, select, textarea, dialog");
  if (event.ctrlKey || event.metaKey || event.altKey || (field && event.key !== "Escape")) return;
  if (event.key === "?") { event.preventDefault(); help(); return; }
  if (field?.closest("dialog")) return;
  if (page === null) waiting = event.key;
  else if (page.key?.(event.key)) event.preventDefault();
});

document.addEventListener("click", (event) => {
  const anchor = event.target.closest?.("a[href]");
  if (!anchor || event.button || event.ctrlKey || event.metaKey || event.shiftKey || anchor.hasAttribute("download")) return;
  const to = new URL(anchor.href);
  if (to.origin !== location.origin || to.hash || to.pathname.startsWith("/api/")) return;
  event.preventDefault();
  go(to.pathname, to.searchParams).then(() => { main.focus({ preventScroll: true }); scrollTo(0, 0); });
});

addEventListener("popstate", show);
show();
