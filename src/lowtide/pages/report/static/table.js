// A table of thousands of rows of which only those in sight are elements; it sorts and filters in place.
const ROW = 27;
const BEYOND = 6;

class VirtualTable {
  constructor(parent, table, onRow) {
    this.columns = table.columns;
    this.onRow = onRow;
    this.count = this.columns[0].values.length;
    this.searched = this.columns.filter((column) => isText(column));
    this.chosen = new Map();
    this.sortBy = table.sort;
    this.rising = table.sort === 0;
    for (const column of this.columns) column.width = needed(column);
    const grid = this.columns.map((column) => track(column)).join(" ");
    this.bar = element("div", "controls");
    this.head = element("div", "row head");
    this.head.style.gridTemplateColumns = grid;
    this.body = element("div", "rows");
    this.box = element("div", "table", this.head, this.body);
    this.box.setAttribute("role", "table");
    this.box.setAttribute("aria-label", table.title);
    this.box.tabIndex = 0;
    this.grid = grid;
    this.makeFilters(table);
    parent.append(this.bar, this.box);
    const width = this.columns.reduce((sum, column) => sum + column.width, 0);
    this.head.style.minWidth = this.body.style.minWidth = `${width}px`;
    this.box.addEventListener("scroll", () => this.show());
    new ResizeObserver(() => this.show()).observe(this.box);
    this.update();
  }

  makeFilters(table) {
    this.search = element("input", "search");
    this.search.type = "search";
    this.search.placeholder = "filter: words in any column";
    this.search.setAttribute("aria-label", `filter ${table.title}`);
    this.search.addEventListener("input", () => this.update());
    this.bar.append(this.search);
    for (const column of this.columns.filter((each) => each.kind === "choice")) {
      const select = element("select", "");
      select.setAttribute("aria-label", column.label);
      select.append(new Option(`any ${column.label}`, ""));
      const values = [...new Set(column.values)].map((value) => [string(value), value]).sort();
      for (const [word, value] of values) select.append(new Option(word || "(none)", String(value)));
      if (values.length < 2) continue;
      select.addEventListener("change", () => {
        if (select.value) this.chosen.set(column, Number(select.value));
        else this.chosen.delete(column);
        this.update();
      });
      this.bar.append(select);
    }
    this.tally = element("span", "tally");
    this.bar.append(this.tally);
  }

  update() {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    this.rows = [];
    for (let row = 0; row < this.count; row += 1) {
      if (this.fits(row, words)) this.rows.push(row);
    }
    this.sort();
    this.drawHead();
    this.tell();
    this.body.style.height = `${this.rows.length * ROW}px`;
    this.box.scrollTop = 0;
    this.inSight = "";
    this.show();
  }

  fits(row, words) {
    for (const [column, value] of this.chosen) if (column.values[row] !== value) return false;
    return words.every((word) => this.searched.some((column) => lower(column.values[row]).includes(word)));
  }

  sort() {
    const { values } = this.columns[this.sortBy];
    const sign = this.rising ? 1 : -1;
    const compare = isText(this.columns[this.sortBy]) ? (a, b) => ALPHABET.compare(string(values[a]), string(values[b])) : (a, b) => values[a] - values[b];
    this.rows.sort((a, b) => sign * compare(a, b) || a - b);
  }

  drawHead() {
    const cells = this.columns.map((column, k) => {
      const cell = element("button", `cell ${column.kind}`, column.label);
      cell.title = column.hint ? `${column.hint}; click to sort` : "click to sort";
      cell.setAttribute("role", "columnheader");
      const sorted = k === this.sortBy;
      cell.setAttribute("aria-sort", sorted ? (this.rising ? "ascending" : "descending") : "none");
      if (sorted) cell.append(element("span", "arrow", this.rising ? "▲" : "▼"));
      cell.addEventListener("click", () => {
        this.rising = sorted ? !this.rising : isText(column) || k === 0;
        this.sortBy = k;
        this.update();
      });
      return cell;
    });
    this.head.replaceChildren(...cells);
  }

  // How many rows there are, and what the summable columns add up to.
  tell() {
    const parts = [`${this.rows.length.toLocaleString("en")} of ${this.count.toLocaleString("en")} rows`];
    for (const column of this.columns.filter((each) => each.total)) {
      const sum = this.rows.reduce((total, row) => total + column.values[row], 0);
      parts.push(`${column.label}: ${FORMATS[column.kind](sum)}`);
    }
    this.tally.textContent = parts.join(" · ");
  }

  show() {
    const first = Math.max(Math.floor(this.box.scrollTop / ROW) - BEYOND, 0);
    const last = Math.min(first + Math.ceil(this.box.clientHeight / ROW) + 2 * BEYOND, this.rows.length);
    if (this.inSight === `${first} ${last}`) return;
    this.inSight = `${first} ${last}`;
    const shown = [];
    for (let place = first; place < last; place += 1) shown.push(this.row(place));
    if (!this.rows.length) shown.push(element("div", "nothing", "No row fits the filter."));
    this.body.replaceChildren(...shown);
  }

  row(place) {
    const row = this.rows[place];
    const made = element("div", "row");
    made.setAttribute("role", "row");
    made.style.top = `${place * ROW}px`;
    made.style.gridTemplateColumns = this.grid;
    for (const { kind, values } of this.columns) {
      const content = FORMATS[kind](values[row]);
      const cell = element("div", `cell ${kind}`, kind === "path" ? element("bdi", "", content) : content);
      cell.setAttribute("role", "cell");
      if (isText({ kind }) && kind !== "choice") cell.title = string(values[row]);
      made.append(cell);
    }
    if (this.onRow) {
      made.classList.add("links");
      made.addEventListener("click", (event) => this.onRow(row, event));
    }
    return made;
  }
}

const ALPHABET = new Intl.Collator("en", { numeric: true });
const lowered = new Map();

function lower(number) {
  if (!lowered.has(number)) lowered.set(number, string(number).toLowerCase());
  return lowered.get(number);
}

function isText(column) {
  return ["text", "path", "choice", "op", "where"].includes(column.kind);
}

// Names are shown whole: a column of them is as wide as the longest, up to a limit that no usual name reaches.
const WIDEST = 520;
const measuring = document.createElement("canvas").getContext("2d");

function needed({ kind, label, values, width }) {
  if (!isText({ kind }) || kind === "choice") return width;
  measuring.font = "12.5px system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif";
  let longest = label;
  for (const value of new Set(values)) {
    const text = FORMATS[kind](value);
    if (text.length > longest.length) longest = text;
  }
  return Math.min(Math.max(Math.ceil(1.06 * measuring.measureText(longest).width) + 18, 70), WIDEST);
}

function track(column) {
  return isText(column) && column.kind !== "choice" ? `minmax(${column.width}px, ${column.width}fr)` : `${column.width}px`;
}
