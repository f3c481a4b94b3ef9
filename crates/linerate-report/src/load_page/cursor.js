(function () {
  var box = document.querySelector(".timed"), table = document.getElementById("series"), out = document.getElementById("row");
  if (!box || !table) return;
  var names = [].map.call(table.tHead.rows[0].cells, function (c) { return c.textContent; });
  var rows = table.tBodies[0].rows, ends = [].map.call(rows, function (r) { return parseFloat(r.cells[0].textContent.replace(/,/g, "")); });
  var last = ends[ends.length - 1], left = 74, right = 546, at = -1;
  var lines = [].map.call(box.querySelectorAll("svg"), function (svg) {
    var line = document.createElementNS("http://www.w3.org/2000/svg", "line");
    line.setAttribute("class", "cursor"); line.setAttribute("y1", 22); line.setAttribute("y2", 158);
    line.setAttribute("visibility", "hidden"); svg.appendChild(line); return line;
  });
  function show(i) {
    at = Math.max(0, Math.min(rows.length - 1, i));
    var x = left + (right - left) * ends[at] / last;
    lines.forEach(function (l) { l.setAttribute("x1", x); l.setAttribute("x2", x); l.setAttribute("visibility", "visible"); });
    out.textContent = [].map.call(rows[at].cells, function (c, n) { return names[n] + " " + c.textContent; }).join(", ");
  }
  box.addEventListener("keydown", function (e) {
    var to = { ArrowLeft: at - 1, ArrowRight: at + 1, PageUp: at - 10, PageDown: at + 10, Home: 0, End: rows.length - 1 }[e.key];
    if (to !== undefined) { e.preventDefault(); show(to); }
  });
  box.addEventListener("pointermove", function (e) {
    var svg = e.target.closest && e.target.closest("svg");
    if (!svg) return;
    var r = svg.getBoundingClientRect(), t = ((e.clientX - r.left) / r.width * 560 - left) / (right - left) * last, i = 0;
    while (i < ends.length - 1 && ends[i] < t) i++;
    show(i);
  });
})();
