const options = {displaylogo: false, responsive: true, modeBarButtons: [["toImage"]]};
const narrow = window.innerWidth < 700, dark = matchMedia("(prefers-color-scheme: dark)").matches;
// Labels of rows in lines of at most 18 characters, so that bars keep most of a narrow chart.
const inLines = (text) => String(text).split(" ").reduce((lines, word) => {
  const joined = [...lines.slice(0, -1), `${lines.at(-1)} ${word}`.trim()];
  return joined.at(-1).length <= 18 ? joined : [...lines, word];
}, [""]).filter((line) => line).join("<br>");
for (const box of document.querySelectorAll("[data-figure]")) {
  const figure = JSON.parse(document.getElementById(box.dataset.figure).textContent);
  const layout = figure.layout, named = figure.data.filter((trace) => trace.name && trace.showlegend !== false).length;
  if (narrow && named > 1) {
    // The legend lies below the chart, which keeps its height.
    const rows = Math.ceil(named / 2) * 21 + 60;
    layout.height = (layout.height || 450) + rows;
    layout.legend = {orientation: "h", x: 0, y: 0, yref: "container", yanchor: "bottom", font: {size: 11}};
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
