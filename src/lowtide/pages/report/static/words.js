// The page's content, how numbers are written, and how elements are made: text is always text, never HTML.
const data = JSON.parse(document.getElementById("data").textContent);

const KINDS = {
  recompute: { word: "recompute", colour: "#D55E00" },
  pack: { word: "pack", colour: "#CC79A7" },
  unpack: { word: "unpack", colour: "#CC79A7" },
  update: { word: "update", colour: "#009E73" },
  swap: { word: "swap", colour: "#8A5CC2" },
  collective: { word: "collective", colour: "#E69F00" },
};
const PHASES = { forward: "#0072B2", backward: "#D55E00", optimizer: "#009E73" };
const FATES = { kept: "#56B4E9", recomputed: "#D55E00", packed: "#0072B2", swapped: "#8A5CC2" };

function string(number) {
  return data.strings[number];
}

function formatBytes(size) {
  let unit = 0;
  while (Math.abs(size) >= 1024 && unit < 4) {
    size /= 1024;
    unit += 1;
  }
  const digits = unit === 0 ? 0 : Math.abs(size) < 10 || unit === 4 ? 2 : 1;
  return `${size.toFixed(digits)} ${["B", "KiB", "MiB", "GiB", "TiB"][unit]}`;
}

function formatMs(ms) {
  if (ms >= 1000) return `${(ms / 1000).toFixed(2)} s`;
  return ms >= 1 ? `${ms.toFixed(1)} ms` : `${(ms * 1000).toFixed(0)} µs`;
}

function formatShare(share) {
  return `${share < 0 ? "−" : "+"}${Math.abs(100 * share).toFixed(1)} %`;
}

const FORMATS = {
  text: string,
  path: string,
  choice: string,
  op: (number) => string(number).replace(/^aten\./, "").replace(/\.default$/, ""),
  where: (number) => string(number).split("/").pop(),
  count: (value) => value.toLocaleString("en"),
  bytes: formatBytes,
  ms: formatMs,
  rate: (value) => `${formatBytes(value)}/ms`,
};

function element(tag, className, ...content) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...content);
  return made;
}

function swatch(colour) {
  const made = element("span", "swatch");
  made.style.background = colour;
  return made;
}

// Colours of the page's own parts, for canvases, as the reader's light or dark setting has them.
function theme() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(name).trim();
  return { ink: read("--ink"), faint: read("--faint"), line: read("--line"), limit: read("--limit") };
}

// Calls `again` whenever the reader changes between light and dark.
function onThemeChange(again) {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
}

function byteUnit(most) {
  const powers = [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]];
  const [unit, factor] = powers.find(([, power]) => most >= power) ?? ["B", 1];
  return { unit, factor };
}

// The last place in rising `values` that is not above `value`; 0 where all are.
function lastAtMost(values, value) {
  let low = 0;
  let high = values.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (values[middle] <= value) low = middle;
    else high = middle - 1;
  }
  return low;
}
