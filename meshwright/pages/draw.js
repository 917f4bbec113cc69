const narrow = window.innerWidth < 700, dark = matchMedia("(prefers-color-scheme: dark)").matches;
// The button for a picture would lie on a narrow chart.
const options = {displaylogo: false, responsive: true, modeBarButtons: [["toImage"]], displayModeBar: narrow ? false : "hover"};
// Labels of rows in lines of at most 18 characters, so that bars keep most of a narrow chart.
const inLines = (text) => String(text).split(" ").reduce((lines, word) => {
  const joined = [...lines.slice(0, -1), `${lines.at(-1)} ${word}`.trim()];
  return joined.at(-1).length <= 18 ? joined : [...lines, word];
}, [""]).filter((line) => line).join("<br>");
// A trace of blocks as rectangles, odd micro batches lighter, and as invisible points to hover.
const drawn = (trace, names) => {
  const {blocks, ...shared} = trace, [top, bottom] = blocks.lane;
  const parts = [1, 0.72].map((opacity) => ({...shared, opacity, x: [], y: [], fill: "toself", hoverinfo: "skip",
    line: {width: 0.5, color: shared.fillcolor}}));
  const points = {...shared, fillcolor: undefined, x: [], y: [], text: [], line: {width: 0}, showlegend: false,
    hovertemplate: "%{text}<extra></extra>"};
  let tick = 0;
  blocks.row.forEach((row, index) => {
    tick += blocks.start[index];
    const start = tick * blocks.tick, length = blocks.length[index] * blocks.tick, end = start + length;
    const batch = blocks.micro_batch ? blocks.micro_batch[index] : -1, part = parts[batch > 0 ? batch % 2 : 0];
    part.x.push(start, end, end, start, start, null);
    part.y.push(row + top, row + top, row + bottom, row + bottom, row + top, null);
    points.x.push(start + length / 2);
    points.y.push(row + (top + bottom) / 2);
    points.text.push(`${shared.name}${batch < 0 ? "" : `, micro batch ${batch}`}<br>${names[row]}, ` +
      `from ${+start.toPrecision(7)} s, ${+(1e3 * length).toPrecision(4)} ms`);
  });
  const shown = parts.filter((part) => part.x.length);
  shown.slice(1).forEach((part) => { part.showlegend = false; });
  return [...shown, points];
};
for (const box of document.querySelectorAll("[data-figure]")) {
  const figure = JSON.parse(document.getElementById(box.dataset.figure).textContent);
  const layout = figure.layout;
  figure.data = figure.data.flatMap((trace) => trace.blocks ? drawn(trace, layout.yaxis.ticktext) : [trace]);
  const named = figure.data.filter((trace) => trace.name && trace.showlegend !== false && layout.showlegend !== false).map((trace) => trace.name);
  if (narrow && named.length > 1) {
    // The legend lies below the chart, which keeps its height.
    const longest = Math.max(...named.map((name) => name.length)), columns = Math.floor(box.clientWidth / (6 * longest + 55));
    const rows = Math.ceil(named.length / Math.max(columns, 1)) * 21 + 60;
    layout.height = (layout.height || 450) + rows;
    layout.legend = {...layout.legend, orientation: "h", x: 0, y: 0, yref: "container", yanchor: "bottom", font: {size: 11}};
    layout.margin = {...layout.margin, l: 40, b: rows + 25};
    box.style.height = layout.height + "px";
  }
  const rowNames = layout.yaxis && layout.yaxis.ticktext;
  if (narrow && rowNames) {
    layout.yaxis.ticktext = rowNames.map(inLines);
    layout.yaxis.tickfont = {...layout.yaxis.tickfont, size: 10};
    const most = Math.max(...layout.yaxis.ticktext.map((text) => text.split("<br>").length));
    layout.height = (layout.height || 450) + rowNames.length * Math.max(0, most - 2) * 12;
    box.style.height = layout.height + "px";
  }
  if (dark) layout.font = {...layout.font, color: "#e4e7eb"};
  Plotly.newPlot(box, figure.data, layout, options);
  const picked = document.getElementById(box.dataset.figure + "-picked");
  if (picked) box.on("plotly_click", (event) => {
    const text = event.points[0].data.picks;
    if (text) picked.textContent = text[event.points[0].pointNumber];
  });
}
// A table that fits needs no swipe.
for (const sign of document.querySelectorAll(".swipe")) {
  const box = sign.previousElementSibling;
  if (box.scrollWidth <= box.clientWidth) sign.remove();
}
