(function () {
  var seconds = { t: [], rate: [], p50: [], p99: [], failed: [] }, names = Object.keys(seconds), most = 600;
  var byId = function (id) { return document.getElementById(id); };
  function count(n) { return Math.round(n).toString().replace(/\B(?=(\d{3})+$)/g, ","); }
  function digits(v) { return v >= 100 ? v.toFixed(0) : v >= 10 ? v.toFixed(1) : v.toFixed(2); }
  function micros(us) { return us >= 1e6 ? digits(us / 1e6) + " s" : us >= 1e3 ? digits(us / 1e3) + " ms" : digits(us) + " \u00b5s"; }
  function element(parent, name, attributes, text) {
    var made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (var key in attributes) made.setAttribute(key, attributes[key]);
    if (text !== undefined) made.textContent = text;
    parent.appendChild(made);
  }
  function draw(id, lines, shown, log) {
    var svg = byId(id), left = 74, right = 546, top = 22, bottom = 158, t = seconds.t, all = [];
    lines.forEach(function (line) { line.values.forEach(function (v) { if (v !== null && (v > 0 || !log)) all.push(v); }); });
    svg.textContent = "";
    if (!t.length || !all.length) return;
    var high = Math.max.apply(null, all), low = log ? Math.min.apply(null, all) : 0;
    if (log) { low = Math.pow(10, Math.floor(Math.log10(low))); high = Math.pow(10, Math.ceil(Math.log10(high))); }
    if (high <= low) high = log ? low * 10 : low + 1;
    var first = t.length > 1 ? t[0] : 0, last = t[t.length - 1];
    var x = function (at) { return left + (right - left) * (last > first ? (at - first) / (last - first) : 1); };
    var y = function (v) {
      var share = log ? Math.log10(Math.max(v, low) / low) / Math.log10(high / low) : v / high;
      return bottom - (bottom - top) * share;
    };
    [low, high].forEach(function (v) {
      element(svg, "line", { "class": "axis", x1: left, x2: right, y1: y(v), y2: y(v) });
      element(svg, "text", { "class": "note", x: left - 8, y: y(v) + 4, "text-anchor": "end" }, shown(v));
    });
    [first, last].forEach(function (at, i) {
      element(svg, "text", { "class": "time", x: x(at), y: bottom + 18, "text-anchor": i ? "end" : "start" }, at.toFixed(0) + " s");
    });
    lines.forEach(function (line) {
      var values = line.values, none = function (i) { return !(i in values) || values[i] === null; };
      var path = values.map(function (v, i) {
        return v === null ? "" : (none(i - 1) ? "M" : "L") + x(t[i]).toFixed(1) + " " + y(v).toFixed(1);
      });
      element(svg, "path", { "class": "path " + line.kind, d: path.join("") });
      values.forEach(function (v, i) {
        if (v !== null && none(i - 1) && none(i + 1)) element(svg, "circle", { "class": "mark " + line.kind, cx: x(t[i]), cy: y(v), r: 2.5 });
      });
    });
  }
  function show(totals) {
    var i = seconds.t.length - 1;
    byId("title").textContent = i < 0 ? "Waiting for the first second" : count(seconds.rate[i]) + " responses/s" +
      (seconds.p99[i] > 0 ? ", median " + micros(seconds.p50[i]) + ", p99 " + micros(seconds.p99[i]) : "");
    ["answered", "failed", "unknown", "bad", "in_flight", "open"].forEach(function (name) {
      var at = byId(name);
      at.textContent = count(totals[name]);
      if (name === "failed" || name === "unknown" || name === "bad") at.className = totals[name] ? "bad" : "";
    });
    byId("elapsed").textContent = totals.elapsed.toFixed(0) + " s";
    draw("rate", [{ values: seconds.rate, kind: "b" }], count, false);
    draw("latency", [{ values: seconds.p50, kind: "b" }, { values: seconds.p99, kind: "a" }], micros, true);
    draw("failures", [{ values: seconds.failed, kind: "bad" }], count, false);
  }
  var source = new EventSource("/events");
  source.addEventListener("seconds", function (event) {
    var more = JSON.parse(event.data);
    names.forEach(function (name) {
      seconds[name] = (more.again ? [] : seconds[name]).concat(more[name]).slice(-most);
    });
    byId("state").textContent = "The run goes on.";
    show(more.totals);
  });
  source.addEventListener("end", function (event) {
    source.close();
    var page = JSON.parse(event.data);
    document.open(); document.write(page); document.close();
  });
  source.onerror = function () { byId("state").textContent = "The run cannot be reached: it has ended, or too many pages show it."; };
})();
