// The frontier as a chart, modules and sweeps as bars.

// Stairs, not slopes: a plan serves every larger budget, a bound holds for every smaller one.
class FrontierChart {
  constructor(parent, points) {
    this.points = points;
    this.plot = element("div", "plot");
    parent.append(this.plot);
    this.draw();
    onThemeChange(() => this.draw());
    new ResizeObserver(() => this.plotted.setSize({ width: this.plot.clientWidth, height: 320 })).observe(this.plot);
  }

  draw() {
    const colours = theme();
    const { unit, factor } = byteUnit(Math.max(...this.points.map((point) => point.peak_B)));
    const axis = { stroke: colours.faint, grid: { stroke: colours.line, width: 1 }, ticks: { stroke: colours.line } };
    const percent = (_, value) => (value === null || value === undefined ? "–" : `${value.toFixed(2)} %`);
    const options = {
      width: this.plot.clientWidth,
      height: 320,
      scales: { x: { time: false } },
      axes: [
        { ...axis, label: `peak (${unit})`, labelSize: 22 },
        { ...axis, label: "overhead (%)", labelSize: 22, size: GUTTER - 22 },
      ],
      series: [
        { label: `peak (${unit})`, value: (_, value) => (value === null || value === undefined ? "–" : value.toFixed(3)) },
        { label: "plan", stroke: "#0072B2", width: 2, paths: uPlot.paths.stepped({ align: 1 }), points: { show: true, size: 7 }, value: percent },
        { label: "no schedule is below", stroke: "#D55E00", width: 1.5, dash: [6, 4], paths: uPlot.paths.stepped({ align: -1 }), value: percent },
      ],
    };
    const columns = [
      this.points.map((point) => point.peak_B / factor),
      this.points.map((point) => 100 * point.overhead),
      this.points.map((point) => 100 * point.bound),
    ];
    if (this.plotted) this.plotted.destroy();
    this.plotted = new uPlot(options, columns, this.plot);
  }
}

// Activations by module: how many of their bytes are kept, recomputed, packed, swapped.
function moduleBars(parent, modules) {
  const words = Object.keys(FATES).filter((word) => modules.some((row) => row.bytes[word]));
  const legend = element("div", "legend", ...words.map((word) => element("span", "", swatch(FATES[word]), word)));
  const sums = modules.map((row) => Object.values(row.bytes).reduce((sum, bytes) => sum + bytes, 0));
  const most = Math.max(...sums);
  const grid = element("div", "bars");
  modules.forEach((row, k) => {
    const name = element("div", "bar-name", element("bdi", "", row.module));
    name.title = row.module;
    const parts = words.filter((word) => row.bytes[word]).map((word) => part(row.bytes[word] / most, FATES[word], `${word}: ${formatBytes(row.bytes[word])}`));
    grid.append(name, element("div", "bar", ...parts), element("div", "bar-value", formatBytes(sums[k])));
  });
  parent.append(legend, grid);
}

// One row per kind of module: its share of the peak, and what making its activations again takes.
function fillerTable(parent, rows) {
  const head = ["module", "activations", "bytes at the peak", "share of the peak", "", "time to make them again", "most of them at"];
  const table = element("table", "plain", element("thead", "", element("tr", "", ...head.map((word) => element("th", "", word)))));
  const body = element("tbody");
  const most = Math.max(...rows.map((row) => row.share), 0.001);
  for (const row of rows) {
    const bar = element("td", "pair", element("div", "bar", part(row.share / most, "#56B4E9", formatBytes(row.bytes))));
    const cells = [row.module, row.count.toLocaleString("en"), formatBytes(row.bytes), `${(100 * row.share).toFixed(1)} %`];
    const line = element("td", "", row.source.split("/").pop());
    line.title = row.source;
    body.append(element("tr", "", ...cells.map((cell) => element("td", "", cell)), bar, element("td", "", formatMs(row.recompute_ms)), line));
  }
  table.append(body);
  parent.append(element("div", "scrolls", table));
}

// One row per batch size: bytes and times without and with a plan.
function sweepTable(parent, cases) {
  const most = Math.max(...cases.flatMap((each) => [each.peak_before_B ?? 0, each.peak_after_B ?? 0]));
  const head = ["model", "batch", "peak", "without", "with", "change", "step without", "with", "change", ""];
  const table = element("table", "plain", element("thead", "", element("tr", "", ...head.map((word) => element("th", "", word)))));
  const body = element("tbody");
  for (const each of cases) {
    const bars = element("td", "pair");
    const drawn = [[each.peak_before_B, "#8A8A8A"], [each.peak_after_B, "#009E73"]];
    for (const [bytes, colour] of drawn) if (bytes !== null) bars.append(element("div", "bar", part(bytes / most, colour, formatBytes(bytes))));
    const cells = [each.model, String(each.batch_size), bars];
    const saved = each.peak_before_B !== null && each.peak_after_B !== null ? each.peak_after_B / each.peak_before_B - 1 : null;
    cells.push(...compared(each.peak_before_B, each.peak_after_B, formatBytes, saved));
    cells.push(...compared(each.before_ms, each.after_ms, formatMs, each.overhead), each.note);
    body.append(element("tr", "", ...cells.map((cell) => (cell === bars ? bars : element("td", "", cell)))));
  }
  table.append(body);
  parent.append(element("div", "scrolls", table));
}

function compared(before, after, format, change) {
  const shown = (value, write) => (value === null ? "–" : write(value));
  return [shown(before, format), shown(after, format), shown(change, formatShare)];
}

function part(share, colour, hint) {
  const made = element("span", "bar-part");
  made.style.width = `${100 * share}%`;
  made.style.background = colour;
  made.title = hint;
  return made;
}
