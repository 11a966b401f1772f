// Under the chart, on the same axis: the phases, and when something is recomputed, packed, swapped or updated.
const STRIP_ROW = 18;

class PlanStrip {
  constructor(onMove) {
    this.canvas = element("canvas", "strip");
    this.canvas.addEventListener("mousemove", (event) => onMove(event.offsetX - GUTTER));
    this.canvas.addEventListener("mouseleave", () => onMove(-10));
  }

  draw(plot, view, x, byTime, colours) {
    const rows = stripRows(view);
    const ratio = devicePixelRatio;
    const width = plot.root.clientWidth;
    const height = rows.length * STRIP_ROW + 4;
    this.canvas.width = width * ratio;
    this.canvas.height = height * ratio;
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    const context = this.canvas.getContext("2d");
    context.scale(ratio, ratio);
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "middle";
    const left = plot.bbox.left / ratio;
    const right = left + plot.bbox.width / ratio;
    rows.forEach((row, k) => {
      const top = k * STRIP_ROW + 2;
      context.fillStyle = colours.faint;
      context.textAlign = "right";
      context.fillText(row.word, left - 8, top + STRIP_ROW / 2);
      context.fillStyle = colours.line;
      context.fillRect(left, top + STRIP_ROW / 2 - 0.5, right - left, 1);
      context.textAlign = "center";
      for (const [first, last, colour, word] of row.spans) {
        const beside = byTime && string(view.lane[first]) !== "compute";
        const [begin, end] = beside ? [view.start[first], view.start[first] + view.ms[first]] : [x[first], x[last + 1]];
        const from = Math.max(left + plot.valToPos(begin, "x"), left);
        const to = Math.min(left + plot.valToPos(end, "x"), right);
        if (to < left || from > right) continue;
        context.fillStyle = colour;
        context.fillRect(from, top + 2, Math.max(to - from, 1.2), STRIP_ROW - 4);
        if (word && to - from > 70) {
          context.fillStyle = "#ffffff";
          context.fillText(word, (from + to) / 2, top + STRIP_ROW / 2);
        }
      }
    });
  }
}

// Rows of spans [first step, last step, colour, word inside]; equal neighbours on the compute lane are one span.
function stripRows(view) {
  const phaseOf = phases(view);
  const named = (i) => PHASES[phaseOf(i)] && [PHASES[phaseOf(i)], phaseOf(i)];
  const ofKinds = (...kinds) => (i) => kinds.includes(string(view.kind[i])) && [KINDS[string(view.kind[i])].colour, ""];
  const rows = [
    ["phase", named],
    ["recompute", ofKinds("recompute")],
    ["pack, unpack", ofKinds("pack", "unpack")],
    ["swap", ofKinds("swap")],
    ["collective", ofKinds("collective")],
    ["update", ofKinds("update")],
  ];
  return rows.map(([word, look]) => ({ word, spans: spansOf(view, look) })).filter((row) => row.spans.length);
}

// What a plan puts between two ops of the program belongs to the phase that it interrupts; what stands behind the last
// of them, the update at the end, is a phase of its own. A plan alone does not know the phases of the program.
function phases(view) {
  const isProgram = (i) => string(view.kind[i]) === "program";
  if (!view.at.some((_, i) => isProgram(i) && string(view.phase[i]))) return () => "";
  let end = view.at.length - 1;
  while (end > 0 && !isProgram(end)) end -= 1;
  let phase = "";
  const found = view.at.map((_, i) => {
    if (isProgram(i) || i > end) phase = string(view.phase[i]);
    return phase;
  });
  return (i) => found[i];
}

function spansOf(view, look) {
  const spans = [];
  const beside = (i) => string(view.lane[i]) !== "compute";
  for (let i = 0; i < view.at.length; i += 1) {
    const [colour, word] = look(i) || [];
    const before = spans[spans.length - 1];
    const joins = before && before[1] === i - 1 && before[2] === colour && (word || !(beside(i) || beside(i - 1)));
    if (colour && joins) before[1] = i;
    else if (colour) spans.push([i, i, colour, word]);
  }
  return spans;
}
