// Asking the server, and writing numbers.

export class Fault extends Error {}

export const get = (path, signal) => ask(path, { signal, headers: { Accept: "application/json" } });

/** Send a value to the one thing that the server writes: labels. */
export const post = (path, value) => ask(path, {
  method: "POST", headers: { Accept: "application/json", "Content-Type": "application/json" }, body: JSON.stringify(value),
});

const ask = async (path, options) => {
  let reply;
  try {
    reply = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Fault("No connection to the viewer. Is `orchestrator view` still running?");
  }
  const said = await reply.json().catch(() => ({ error: `the viewer replied with status ${reply.status}` }));
  if (!reply.ok) throw new Fault(said.error);
  return said;
};

export const runPath = (run) => `/api/runs/${encodeURIComponent(run)}`;

const UNDEFINED = "–";

export const count = (value) => (value === null || value === undefined ? UNDEFINED : value.toLocaleString("en-US"));

export const fixed = (value, digits = 3) =>
  (typeof value === "number" && Number.isFinite(value) ? value.toFixed(digits).replace(/^-(0(\.0*)?)$/, "$1") : UNDEFINED);

export const share = (value) => {
  if (typeof value !== "number") return UNDEFINED;
  if (value > 0 && value < 0.005) return "< 1 %";
  if (value < 1 && value > 0.995) return "> 99 %";
  return `${Math.round(value * 100)} %`;
};

export const signed = (value, digits = 3) =>
  (typeof value === "number" ? (Number(value.toFixed(digits)) > 0 ? "+" : "") + fixed(value, digits) : UNDEFINED);

export const bytes = (value) => {
  let rest = value;
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (rest < 1000 || unit === "GB") return `${rest >= 10 || unit === "B" ? Math.round(rest) : rest.toFixed(1)} ${unit}`;
    rest /= 1000;
  }
  return "";
};
