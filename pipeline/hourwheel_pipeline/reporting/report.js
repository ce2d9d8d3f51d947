// Draws the charts of the report. The page has the text of scales.js and charts.js of the console before this one.
for (const place of document.querySelectorAll("[data-chart]")) {
  const options = JSON.parse(place.dataset.chart);
  place.prepend(options.bars ? barChart(options) : lineChart(options));
}
