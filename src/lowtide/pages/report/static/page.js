// Puts the sections together; a section is there where its data is.
function section(key, title, note) {
  const made = element("section", "", element("h2", "", title));
  made.id = key;
  if (note) made.append(element("p", "note", note));
  document.getElementById("main").append(made);
  const link = element("a", "", title);
  link.href = `#${key}`;
  links.append(link);
  return made;
}

function card({ label, value, before, change, lines }) {
  const figure = element("div", "figure");
  if (before) figure.append(element("span", "before", before), element("span", "to", "→"));
  const long = value.length > 22; // a module's path, which may break behind its dots
  figure.append(element("span", long ? "value long" : "value", long ? value.replaceAll(".", ".\u200b") : value));
  if (change) figure.append(element("span", "change", change));
  return element("div", "card", element("div", "label", label), figure, ...lines.map((line) => element("div", "line", line)));
}

const links = element("nav");
document.title = data.title ? `${data.title} · lowtide` : "lowtide report";
const head = document.getElementById("head");
head.append(element("h1", "", data.title || "lowtide report"), ...data.about.map((line) => element("p", "about", line)), links);

if (data.cards.length) {
  const made = section("summary", data.views.length > 1 ? "Before and after" : "In short");
  made.append(element("div", "cards", ...data.cards.map(card)));
  if (data.verdict) made.append(element("p", `verdict ${data.equal === null ? "" : data.equal ? "good" : "bad"}`, data.verdict));
}
let chart = null;
if (data.views.length) {
  chart = new StepChart(section("memory", "Memory over the step"), data.views, data.before, data.budget);
}
if (data.fillers.length) {
  const note =
    "Activations alive at the peak of the step as captured, by the module that makes them: a smaller one there, or one that " +
    "keeps less for backward, lowers the peak. Layers that are alike count together, * stands for their numbers.";
  fillerTable(section("fillers", "Which module to change", note), data.fillers);
}
if (data.modules.length) {
  moduleBars(section("modules", "What the plan does, by module", "Bytes of the activations that each module makes."), data.modules);
}
const shownIn = { ops: "as captured", steps: "planned" };
for (const table of data.tables) {
  const title = shownIn[table.key];
  const linked = chart && chart.views.some((view) => view.title === title && view.at.length === table.columns[0].values.length);
  const note = linked ? `${table.note} Click a row to see it in the chart.` : table.note;
  new VirtualTable(section(table.key, table.title, note), table, linked ? (row, event) => chart.show(title, row, event) : null);
}
if (data.frontier.length) {
  new FrontierChart(section("frontier", "Peak against time", "Every trade of peak against time that the planner found."), data.frontier);
}
if (data.sweep.length) {
  sweepTable(section("sweep", "By batch size", "Without and with a plan, measured."), data.sweep);
}
