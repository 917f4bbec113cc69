/* Explorer of scored plans: a scatter, parallel coordinates, filters, one plan's breakdown and its neighbours. */
const explorer = JSON.parse(document.getElementById("explorer-data").textContent);
const { count, fields, figures, command } = explorer;
const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
const unpacked = (column) => typeof column === "string" ? bytes(column) : column;
const values = explorer.values.map(({ low, step, numbers }) => Array.from(new Uint16Array(bytes(numbers).buffer), (number) => low + number * step));
const codes = explorer.codes.map(unpacked), parts = explorer.parts.map((part) => ({ ...part, values: unpacked(part.values) }));
const byId = (id) => document.getElementById(id);
const kept = new Array(count).fill(true);
const limits = {};
let chosen = 0;

const word = (field, row) => fields[field].words[codes[field][row]];
const shown = (figure, value) => {
  const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 3;
  return value.toFixed(digits).replace(/\B(?=(\d{3})+(?!\d))/g, ",") + (figures[figure].unit ? " " + figures[figure].unit : "");
};
const element = (tag, text, attributes = {}) => {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
};
const describe = (row) => fields.map((field, i) => [field.name, word(i, row)]);

function controls() {
  for (const axis of ["x", "y", "colour"]) {
    const select = byId("explorer-" + axis);
    figures.forEach((figure, i) => select.append(element("option", figure.name, { value: i })));
    if (axis === "colour") fields.forEach((field, i) => select.append(element("option", field.name, { value: "f" + i })));
    select.value = { x: "0", y: "1", colour: "2" }[axis];
    select.addEventListener("change", draw);
  }
  const box = byId("explorer-filters");
  fields.forEach((field, i) => {
    if (field.words.length < 2) return;
    const select = element("select", undefined, { "data-field": i, "aria-label": field.name });
    select.append(element("option", "any", { value: "" }));
    field.words.forEach((text, code) => select.append(element("option", text, { value: code })));
    select.addEventListener("change", filter);
    const label = element("label", field.name);
    label.append(select);
    box.append(label);
  });
}

function filter() {
  const wanted = [...document.querySelectorAll("#explorer-filters select")]
    .filter((select) => select.value !== "")
    .map((select) => [Number(select.dataset.field), Number(select.value)]);
  for (let row = 0; row < count; row++) {
    kept[row] = wanted.every(([field, code]) => codes[field][row] === code)
      && Object.entries(limits).every(([figure, [low, high]]) => values[figure][row] >= low && values[figure][row] <= high);
  }
  draw();
}

function rows() {
  const found = [];
  for (let row = 0; row < count; row++) if (kept[row]) found.push(row);
  return found;
}

function draw() {
  const [x, y, colour] = ["x", "y", "colour"].map((axis) => byId("explorer-" + axis).value);
  const some = rows();
  const column = colour.startsWith("f") ? codes[Number(colour.slice(1))] : values[colour];
  byId("explorer-count").textContent = `${some.length.toLocaleString("en")} of ${count.toLocaleString("en")} plans`;
  const points = {
    type: "scatter", mode: "markers",
    x: some.map((row) => values[x][row]), y: some.map((row) => values[y][row]), customdata: some,
    text: some.map((row) => describe(row).map(([name, text]) => name + " " + text).join(", ")),
    hovertemplate: "%{text}<br>%{x:.4g}, %{y:.4g}<extra></extra>",
    marker: { size: 5, color: some.map((row) => column[row]), colorscale: "Viridis", opacity: 0.75, showscale: true,
      colorbar: { thickness: 10, orientation: "h", y: -0.28, len: 0.6 } },
  };
  const mark = { type: "scatter", mode: "markers", x: [values[x][chosen]], y: [values[y][chosen]], hoverinfo: "skip",
    marker: { size: 13, color: "rgba(0,0,0,0)", line: { width: 2.5, color: "#c8374a" } } };
  const style = getComputedStyle(document.body);
  const common = { color: style.color, gridcolor: "#8884", automargin: true, zeroline: false };
  const layout = { margin: { l: 60, r: 12, t: 8, b: 40 }, height: 460, showlegend: false, hovermode: "closest",
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: style.color },
    xaxis: { ...common, title: { text: figures[x].name + " (" + figures[x].unit + ")" } },
    yaxis: { ...common, title: { text: figures[y].name + " (" + figures[y].unit + ")" } } };
  Plotly.react("explorer-scatter", [points, mark], layout, { displaylogo: false, responsive: true, displayModeBar: window.innerWidth < 700 ? false : "hover" });
  coordinates(some);
}

/* Parallel coordinates as an SVG of their own: drag along an axis to keep a range, click an axis to free it. */
function coordinates(some) {
  const svg = byId("explorer-lines"), wide = svg.clientWidth || 600, high = 250, top = 34, base = high - 22;
  svg.replaceChildren();
  svg.setAttribute("viewBox", `0 0 ${wide} ${high}`);
  const make = (tag, attributes, text) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (text !== undefined) made.textContent = text;
    svg.append(made);
    return made;
  };
  const place = figures.map((_, i) => 45 + (i * (wide - 90)) / Math.max(figures.length - 1, 1));
  const ends = values.map((column) => [Math.min(...column), Math.max(...column)]);
  const at = (i, value) => base - ((value - ends[i][0]) / Math.max(ends[i][1] - ends[i][0], 1e-30)) * (base - top);
  const step = Math.max(1, Math.ceil(some.length / 400)); // lines that a screen resolves
  const line = (row) => figures.map((_, i) => `${place[i]},${at(i, values[i][row]).toFixed(1)}`).join(" ");
  for (let i = some.length - 1; i >= 0; i -= step) make("polyline", { points: line(some[i]), class: "plan" });
  make("polyline", { points: line(chosen), class: "chosen" });
  figures.forEach((figure, i) => {
    make("line", { x1: place[i], x2: place[i], y1: top, y2: base, class: "axis" });
    make("text", { x: place[i], y: 12, "text-anchor": "middle" }, figure.name);
    make("text", { x: place[i], y: 27, "text-anchor": "middle" }, shown(i, ends[i][1]));
    make("text", { x: place[i], y: high - 6, "text-anchor": "middle" }, shown(i, ends[i][0]));
    if (limits[i]) make("rect", { x: place[i] - 5, width: 10, y: at(i, limits[i][1]), height: Math.max(at(i, limits[i][0]) - at(i, limits[i][1]), 2), class: "range" });
    const grip = make("rect", { x: place[i] - 14, width: 28, y: top, height: base - top, class: "grip", "data-figure": i });
    grip.addEventListener("pointerdown", (event) => {
      const value = (e) => {
        const box = svg.getBoundingClientRect(), y = ((e.clientY - box.top) * high) / box.height;
        return ends[i][0] + ((base - Math.min(Math.max(y, top), base)) / (base - top)) * (ends[i][1] - ends[i][0]);
      };
      const start = value(event);
      const done = (e) => {
        window.removeEventListener("pointerup", done);
        const stop = value(e);
        if (Math.abs(stop - start) < (ends[i][1] - ends[i][0]) * 0.02) delete limits[i];
        else limits[i] = [Math.min(start, stop), Math.max(start, stop)];
        filter();
      };
      window.addEventListener("pointerup", done);
    });
  });
}

function neighbours(row) {
  const found = [];
  for (let other = 0; other < count; other++) {
    if (other === row) continue;
    const levers = [];
    for (let field = 0; field < fields.length && levers.length < 2; field++)
      if (!fields[field].follows && codes[field][other] !== codes[field][row]) levers.push(field);
    if (levers.length === 1) found.push([other, levers[0]]);
  }
  // Fields that follow may differ: the fastest plan stands for a changed lever.
  const seen = new Set(), name = ([other, field]) => `${field} ${codes[field][other]}`;
  return found.sort((a, b) => values[0][a[0]] - values[0][b[0]])
    .filter((neighbour) => !seen.has(name(neighbour)) && seen.add(name(neighbour))).slice(0, 12);
}

function show(row) {
  chosen = row;
  byId("explorer-plan").textContent = describe(row).map(([name, text]) => `${name} ${text}`).join(", ") || "defaults";
  const list = byId("explorer-figures");
  list.replaceChildren(...figures.map((figure, i) => {
    const cell = element("div");
    cell.append(element("dt", figure.name), element("dd", shown(i, values[i][row])));
    return cell;
  }));
  const total = parts.reduce((sum, part) => sum + part.values[row], 0) || 1;
  byId("explorer-parts").replaceChildren(...parts.filter((part) => part.values[row] > 0).map((part) => {
    const share = (100 * part.values[row]) / total, bar = element("div", undefined, { class: "part" });
    bar.append(element("span", part.name), element("i", undefined, { style: `width:${Math.max(share, 0.3) * 0.6}%;background:${part.colour}` }), element("b", share.toFixed(1) + " %"));
    return bar;
  }));
  const fixed = fields.map((field, i) => field.follows || word(i, row) === "as released" ? "" : ` --fix ${field.name}=${word(i, row)}`).join("");
  // Lines break between options only.
  byId("explorer-command").replaceChildren(...(command + fixed).split(/ (?=--)/).flatMap((option) => [element("span", option, { class: "option" }), " "]).slice(0, -1));
  const body = byId("explorer-neighbours");
  body.replaceChildren(...neighbours(row).map(([other, field]) => {
    const line = element("tr", undefined, { "data-row": other, tabindex: 0 });
    const change = (100 * (values[0][other] - values[0][row])) / values[0][row];
    line.append(element("td", `${fields[field].name}: ${word(field, row)} → ${word(field, other)}`, { class: "words" }),
      element("td", shown(0, values[0][other])), element("td", (change >= 0 ? "+" : "") + change.toFixed(1) + " %"), element("td", shown(1, values[1][other])));
    line.addEventListener("click", () => show(other));
    line.addEventListener("keydown", (event) => { if (event.key === "Enter") show(other); });
    return line;
  }));
  draw();
}

controls();
show(0);
byId("explorer-scatter").on("plotly_click", (event) => {
  const row = event.points[0].customdata;
  if (row !== undefined) show(row);
});
