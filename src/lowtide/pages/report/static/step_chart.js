// Memory over the step: layers stacked, the step before the plan as an outline, the budget as a line, a card under the
// mouse that says what runs there and what fills the memory.
const GUTTER = 104;

class StepChart {
  constructor(parent, views, before, budget) {
    this.views = views.map((view) => ({ ...view, at: computeTimes(view) }));
    this.before = before;
    this.budget = budget;
    this.view = this.views[this.views.length - 1];
    this.byTime = true;
    this.pin = null;
    this.hidden = new Set();
    this.controls = element("div", "controls");
    this.legend = element("div", "legend");
    this.plot = element("div", "plot");
    this.card = element("div", "card-hover");
    this.card.hidden = true;
    this.strip = new PlanStrip((left) => this.plotted.setCursor({ left, top: 20 }));
    this.note = element("p", "note");
    parent.append(this.controls, this.legend, this.plot, this.strip.canvas, this.note);
    this.draw();
    onThemeChange(() => this.draw());
    new ResizeObserver(() => this.resize()).observe(this.plot);
  }

  draw() {
    this.drawControls();
    this.drawLegend();
    const { at, end, layers } = this.view;
    this.x = this.byTime ? [...at, end] : [...at.keys(), at.length];
    const shown = layers.filter((layer) => !this.hidden.has(layer.word));
    this.totals = at.map((_, i) => layers.reduce((sum, layer) => sum + layer.bytes[i], 0));
    const most = Math.max(...this.totals, this.budget ?? 0, ...(this.outline()?.bytes ?? []));
    this.scale = byteUnit(most);
    const stacked = stack(shown, at.length, this.scale.factor);
    if (this.plotted) this.plotted.destroy();
    const top = (1.06 * most) / this.scale.factor;
    this.plotted = new uPlot(this.options(shown, top), [this.x, ...stacked.reverse()], this.plot);
    this.plotted.over.append(this.card);
    this.note.textContent =
      `${this.view.how}. Drag to zoom, double-click to see all.` +
      (this.outline() ? " Thin outline: the step before planning, by the same op times." : "");
  }

  outline() {
    return this.byTime && this.view !== this.views[0] ? this.before : null;
  }

  options(shown, top) {
    const colours = theme();
    const axis = { stroke: colours.faint, grid: { stroke: colours.line, width: 1 }, ticks: { stroke: colours.line } };
    const paths = uPlot.paths.stepped({ align: 1 });
    const seconds = this.byTime && this.view.end >= 10000;
    return {
      width: this.plot.clientWidth,
      height: 380,
      legend: { show: false },
      cursor: { drag: { x: true, y: false }, points: { show: false }, y: false },
      scales: { x: { time: false }, y: { range: [0, top] } },
      axes: [
        {
          ...axis,
          label: this.byTime ? `time (${seconds ? "s" : "ms"})` : "op, in the order of execution",
          labelSize: 20,
          size: 34,
          values: (_, ticks) => ticks.map((tick) => (seconds ? tick / 1000 : tick).toLocaleString("en")),
        },
        { ...axis, label: this.scale.unit, labelSize: 22, size: GUTTER - 22 },
      ],
      series: [{}, ...[...shown].reverse().map((layer) => ({ fill: layer.colour, width: 0, paths, points: { show: false } }))],
      hooks: {
        draw: [(plot) => this.drawOver(plot, colours)],
        setCursor: [(plot) => this.hover(plot)],
      },
    };
  }

  drawOver(plot, colours) {
    const context = plot.ctx;
    const { left, top, width, height } = plot.bbox;
    const y = (bytes) => plot.valToPos(bytes / this.scale.factor, "y", true);
    context.save();
    context.beginPath();
    context.rect(left, top, width, height);
    context.clip();
    context.lineWidth = 1.5 * devicePixelRatio;
    const outline = this.outline();
    if (outline) {
      context.beginPath();
      context.lineJoin = "round";
      outline.start.forEach((start, i) => {
        const next = i + 1 < outline.start.length ? outline.start[i + 1] : outline.end;
        context.lineTo(plot.valToPos(start, "x", true), y(outline.bytes[i]));
        context.lineTo(plot.valToPos(next, "x", true), y(outline.bytes[i]));
      });
      context.strokeStyle = colours.ink;
      context.stroke();
    }
    if (this.budget !== null) {
      context.beginPath();
      context.setLineDash([7 * devicePixelRatio, 4 * devicePixelRatio]);
      context.moveTo(left, y(this.budget));
      context.lineTo(left + width, y(this.budget));
      context.strokeStyle = colours.limit;
      context.stroke();
      context.fillStyle = colours.limit;
      context.textAlign = "left";
      context.textBaseline = "bottom";
      context.font = `600 ${12 * devicePixelRatio}px system-ui, sans-serif`;
      context.fillText(`budget ${formatBytes(this.budget)}`, left + 8 * devicePixelRatio, y(this.budget) - 4 * devicePixelRatio);
    }
    context.restore();
    this.strip.draw(plot, this.view, this.x, this.byTime, colours);
  }

  // What runs at the mouse: the op that began last.
  hover(plot) {
    if (this.isPinned(plot.cursor.event)) {
      plot.setCursor({ left: this.pin.left, top: 20 }, false);
      this.tell(this.pin.step, this.pin.left);
      return;
    }
    this.pin = null;
    const { left } = plot.cursor;
    if (left === undefined || left < 0) {
      this.card.hidden = true;
      return;
    }
    this.tell(Math.min(lastAtMost(this.x, plot.posToVal(left, "x")), this.view.at.length - 1), left);
  }

  // A step that was asked for stays until the mouse moves; scrolling to it moves only the page under the mouse.
  isPinned(event) {
    return this.pin && (!event || (event.clientX === this.pin.x && event.clientY === this.pin.y));
  }

  tell(i, left) {
    this.card.replaceChildren(...this.describe(i));
    this.card.hidden = false;
    const room = this.plotted.over.clientWidth;
    const wide = this.card.offsetWidth;
    this.card.style.left = `${left + 18 + wide > room ? Math.max(left - wide - 18, 0) : left + 18}px`;
  }

  describe(i) {
    const { view } = this;
    const kind = KINDS[string(view.kind[i])];
    const title = element("div", "card-title", string(view.name[i]));
    if (kind) {
      const tag = element("span", "tag", kind.word);
      tag.style.background = kind.colour;
      title.append(tag);
    }
    const rows = element("dl");
    const add = (label, value) => value && rows.append(element("dt", "", label), element("dd", "", value));
    add("op", string(view.op[i]));
    add("module", string(view.module[i]) || "(root)");
    add("line", string(view.source[i]));
    add("phase", string(view.phase[i]));
    add("time", `${formatMs(view.ms[i])} from ${formatMs(view.start[i])}`);
    add("place", `${i.toLocaleString("en")} of ${view.at.length.toLocaleString("en")}`);
    const bytes = element("div", "card-bytes");
    for (const layer of [...view.layers].reverse()) {
      if (layer.bytes[i]) {
        bytes.append(element("div", "", swatch(layer.colour), layer.word), element("div", "", formatBytes(layer.bytes[i])));
      }
    }
    bytes.append(element("div", "card-total", "all"), element("div", "card-total", formatBytes(this.totals[i])));
    return [title, rows, bytes];
  }

  // Bring a step into view, as from the click on a row of a table.
  show(title, i, { clientX, clientY }) {
    const wanted = this.views.find((view) => view.title === title);
    if (wanted !== this.view) {
      this.view = wanted;
      this.draw();
    }
    this.plot.scrollIntoView({ block: "center" });
    const { min, max } = this.plotted.scales.x;
    if (this.x[i] < min || this.x[i] > max) this.plotted.setScale("x", { min: this.x[0], max: this.x[this.x.length - 1] });
    const left = this.plotted.valToPos((this.x[i] + this.x[i + 1]) / 2, "x");
    this.pin = { step: i, left, x: clientX, y: clientY };
    this.plotted.setCursor({ left, top: 20 }, false);
    this.tell(i, left);
  }

  drawControls() {
    const choose = (change) => () => {
      change();
      this.draw();
    };
    const views = this.views.map((view) => [view.title, view === this.view, choose(() => (this.view = view))]);
    const axes = [
      ["by time", this.byTime, choose(() => (this.byTime = true))],
      ["by op", !this.byTime, choose(() => (this.byTime = false))],
    ];
    this.controls.replaceChildren(...(views.length > 1 ? [choices(views)] : []), choices(axes));
  }

  drawLegend() {
    const items = [...this.view.layers].reverse().map((layer) => {
      const off = this.hidden.has(layer.word);
      const item = element("button", off ? "off" : "", swatch(layer.colour), layer.word);
      item.title = off ? "show" : "hide";
      item.addEventListener("click", () => {
        if (off) this.hidden.delete(layer.word);
        else this.hidden.add(layer.word);
        this.draw();
      });
      return item;
    });
    this.legend.replaceChildren(...items);
  }

  resize() {
    this.plotted.setSize({ width: this.plot.clientWidth, height: 380 });
  }
}

// When each step's place in the order is reached: its start, or for a lane beside compute the moment it is asked for.
function computeTimes(view) {
  let clock = 0;
  return view.start.map((start, i) => {
    if (string(view.lane[i]) !== "compute") return clock;
    clock = start + view.ms[i];
    return start;
  });
}

// Running sums from the bottom to the top; the last value stands twice, as the last step has an end.
function stack(layers, count, factor) {
  const height = new Float64Array(count + 1);
  return layers.map((layer) => {
    for (let i = 0; i <= count; i += 1) height[i] += layer.bytes[Math.min(i, count - 1)] / factor;
    return Array.from(height);
  });
}

function choices(entries) {
  const group = element("div", "choices");
  for (const [word, chosen, choose] of entries) {
    const button = element("button", chosen ? "chosen" : "", word);
    button.setAttribute("aria-pressed", String(chosen));
    button.addEventListener("click", choose);
    group.append(button);
  }
  return group;
}
